"""Guesses the next tool call with its arguments, from what a run of an agent has shown so far."""
