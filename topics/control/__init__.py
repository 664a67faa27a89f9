"""Control records in `headstart.events`: messages and sending."""
