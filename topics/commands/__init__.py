"""The topic of overrides and modes: messages and log."""
