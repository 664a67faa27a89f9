"""`headstart.dead-letters`, the topic of refused records: messages and log."""
