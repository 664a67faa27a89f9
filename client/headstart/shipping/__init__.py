"""Sends what is spooled to Kafka, in a process, a thread or a task."""
