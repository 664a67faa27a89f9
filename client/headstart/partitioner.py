"""Partitions keys by Java's murmur2, as every Kafka client does. Starts no Kafka client.

The threshold worker and the shipper must agree on the partition of a key.
"""

from __future__ import annotations

from functools import lru_cache

from aiokafka.partitioner import murmur2


@lru_cache(maxsize=16_384)
def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key. Cached: murmur2 in Python takes microseconds."""
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions
