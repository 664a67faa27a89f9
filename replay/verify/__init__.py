"""Compares the log with the table, Redis and Postgres."""
