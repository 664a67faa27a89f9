"""What has been erased, and must not come back with events that are assembled later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from memory.episodes.run_event import RunEvent
from memory.store.outbox import SQL

Purges = Mapping[tuple[str, str], int]
"""By (tenant, user), "" for all users: events up to this Unix ms were erased."""


async def lock_and_read(connection: AsyncConnection[Any], tenants: Iterable[str]) -> Purges:
    """Keep purges of these tenants waiting until the transaction ends; return the earlier ones."""
    wanted = {"tenants": sorted(set(tenants))}
    await connection.execute(SQL["lock_tenants"], wanted)
    rows = await (await connection.execute(SQL["purges"], wanted)).fetchall()
    return {(tenant, user): at for tenant, user, at in rows}


async def lock_for_purge(connection: AsyncConnection[Any], tenant: str) -> None:
    """Wait until nobody writes episodes of a tenant; until the transaction ends nobody does."""
    await connection.execute(SQL["lock_tenant_for_purge"], {"tenant": tenant})


def not_purged(tenant: str, events: Sequence[RunEvent], purges: Purges) -> Sequence[RunEvent]:
    """Return a run's events without those that were erased: of a run of an erased user, all."""
    if not purges:
        return events
    users = {"", *(event.user_id for event in events if event.user_id)}
    until = max((at for user in users if (at := purges.get((tenant, user))) is not None), default=0)
    return [event for event in events if event.timestamp > until] if until else events
