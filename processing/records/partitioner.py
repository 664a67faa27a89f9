"""Maps a tenant and workflow type to the partition that owns them."""

from __future__ import annotations

from functools import lru_cache

from headstart.keys import event_key
from headstart.partitioner import partition_for_key


@lru_cache(maxsize=65_536)
def partition_for(tenant: str, workflow_type: str, partitions: int) -> int:
    """Return the partition of `headstart.events` that owns a tenant's workflow type."""
    return partition_for_key(event_key(tenant, workflow_type), partitions)
