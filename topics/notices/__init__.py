"""`headstart.notices`, the topic of notices: messages and log."""
