"""Packed runs: the events of a cold run as one compressed column of its episode."""
