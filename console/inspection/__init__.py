"""Inspects a running system from outside: its state, its health and its problems."""
