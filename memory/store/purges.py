"""What has been erased, and must not come back with events that are assembled later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import AsyncConnection

from memory.episodes.run_event import RunEvent
from sinks.postgres.purges import read_purges
from sinks.postgres.tenant_locks import lock_tenants
from topics.control.purges import EventSubject, PartitionPurges, PlacedPurge


async def lock_and_read(
    connection: AsyncConnection[Any], tenants: Iterable[str]
) -> PartitionPurges:
    """Keep purges of these tenants waiting until the transaction ends; return the earlier ones.

    They cover by time alone: stored events have no offset.
    """
    wanted = sorted(set(tenants))
    await lock_tenants(connection, wanted)
    return PartitionPurges(PlacedPurge(each.purge, -1) for each in await read_purges(
        connection, wanted
    ))  # fmt: skip


def not_purged(
    tenant: str, workflow_id: str, events: Sequence[RunEvent], purges: PartitionPurges
) -> Sequence[RunEvent]:
    """Return a run's events without those that were erased."""
    if tenant not in purges.tenants:
        return events
    return [
        event
        for event in events
        if not purges.covers(
            EventSubject(tenant, workflow_id, event.timestamp, event.user_id, event.session_id), 0
        )
    ]
