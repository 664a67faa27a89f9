"""Learns shared models from the records of `headstart.decisions`. Pure."""
