"""Renders retrieved cases as text for an agent's prompt: delimited, escaped, within a budget."""
