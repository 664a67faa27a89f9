"""Encryption at rest: texts of users are sealed with a key of their tenant when they are stored."""
