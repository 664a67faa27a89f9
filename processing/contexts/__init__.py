"""The contexts of a partition: their cache, what they learn, what they answer."""
