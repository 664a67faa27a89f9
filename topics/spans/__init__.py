"""Reads spans of AI agents: which are calls of tools, with which arguments and results."""
