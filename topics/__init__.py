"""Kafka topics: catalogue, message formats, schemas, creation, and the log epoch."""
