"""Writes to and reads from Postgres: episodes, history, notices, migrations."""
