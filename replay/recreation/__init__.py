"""Recreates the topics of a log that a broker keeps, with what was learned and what waits."""
