"""Writes to and reads from Redis: thresholds, overrides, modes, and their repair."""
