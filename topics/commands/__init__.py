"""`headstart.commands`, the topic of overrides and modes: messages and log."""
