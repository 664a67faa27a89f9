"""Backups: a consistent set of files of one system, and their restore into an empty one."""
