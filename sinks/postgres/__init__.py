"""Postgres: episodes, history, notices, migrations."""
