"""The topic of notices: messages and log."""
