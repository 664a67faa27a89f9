"""Replays the log into a new table, and replaces the workers' table with it."""
