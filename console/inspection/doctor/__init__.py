"""Checks of a system; each returns findings with a remedy."""
