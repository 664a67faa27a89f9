"""Replays `headstart.decisions`, and compares the shared models with what follows from it."""
