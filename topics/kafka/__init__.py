"""Kafka access: admin, readers, transactions, compression, record batches."""
