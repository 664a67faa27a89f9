"""Applies events to the state of a partition: one by one, or thousands at once."""
