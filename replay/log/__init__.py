"""The log replayed through the core that the threshold worker runs."""
