"""Checks of what a caller passes in, and of the environment of an executor."""
