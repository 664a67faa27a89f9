"""`headstart config`: overrides, modes and settings."""
