"""The topic of refused events: messages and log."""
