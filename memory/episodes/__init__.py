"""One episode per workflow run: the record, and its assembly from the run's events. Pure."""
