"""Checks the arguments of callers, and the environment of an executor."""
