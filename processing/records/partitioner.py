"""Maps a key to its partition: by murmur2, as every Kafka client does."""

from __future__ import annotations

from functools import lru_cache

from aiokafka.partitioner import murmur2

from headstart.keys import event_key


@lru_cache(maxsize=65_536)
def partition_for(tenant: str, workflow_type: str, partitions: int) -> int:
    """Return the partition of `headstart.events` that owns a tenant's workflow type."""
    hashed: int = murmur2(event_key(tenant, workflow_type))
    return (hashed & 0x7FFFFFFF) % partitions
