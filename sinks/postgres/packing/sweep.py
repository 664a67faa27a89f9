"""Goes through all cold runs once and packs them, a bounded transaction at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg import AsyncConnection

from sinks.postgres.packing.reading import SQL
from sinks.postgres.packing.writing import (
    LEAST_COLD_S,
    MOST_EVENTS,
    START,
    RunKey,
    next_tenant,
    pack_next,
    train_for,
)


class TenantOutlook(NamedTuple):
    """What of a tenant is packed, would be packed, and stays."""

    tenant: str
    packed_runs: int
    packed_events: int
    packed_bytes: int
    cold_runs: int
    """Of which a pack would take `cold_events` events: at most, imported episodes have none."""
    cold_events: int
    young_runs: int
    large_runs: int
    """Of more than `MOST_EVENTS` events."""


class PackSweep:
    """Packs the runs whose last event is older than `cold_s` seconds, of a tenant or of all."""

    def __init__(self, cold_s: float, tenant: str | None = None) -> None:
        self._cold_s, self._tenant = max(cold_s, LEAST_COLD_S), tenant
        self._after: RunKey | None = START
        self._trained = ""
        self.runs = self.events = self.bytes_before = self.bytes_after = 0
        """What was packed; bytes of the content, as JSON and as stored."""
        self.damaged: list[str] = []
        """Why earlier traces could not be read; their runs stay as they are."""

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Pack some runs; return whether there may be more. Raises psycopg's errors."""
        if self._after is None:
            return False
        tenant = await next_tenant(connection, self._after, self._cold_s, self._tenant)
        if tenant is None:
            self._after = None
            return False
        if tenant != self._trained:
            await train_for(connection, tenant, self._cold_s)
            self._trained = tenant
        done = await pack_next(connection, self._after, self._cold_s, self._tenant)
        self._after = done.after
        self.runs += done.runs
        self.events += done.events
        self.bytes_before += done.bytes_before
        self.bytes_after += done.bytes_after
        self.damaged += done.damaged
        return self._after is not None


async def pack_outlook(
    connection: AsyncConnection[Any], cold_s: float, tenant: str | None = None
) -> list[TenantOutlook]:
    """Return by tenant what a sweep would do. Reads the episodes, not the events."""
    which = {"cold_s": max(cold_s, LEAST_COLD_S), "tenant": tenant, "most_events": MOST_EVENTS}
    rows = await (await connection.execute(SQL["outlook"], which)).fetchall()
    return [TenantOutlook(row[0], *map(int, row[1:])) for row in rows]
