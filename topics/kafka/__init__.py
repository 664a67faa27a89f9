"""Kafka itself: admin, reading, transactions, compression, batches."""
