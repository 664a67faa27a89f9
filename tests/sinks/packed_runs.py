"""Packs what is stored, as the memory worker does, and reads traces back, for tests."""

from __future__ import annotations

from sinks.connections import connect_postgres
from sinks.postgres.packing.reading import TraceReader
from sinks.postgres.packing.trace_format import PackedEvent
from sinks.postgres.packing.writing import START, PackedBatch, pack_next


async def packed(dsn: str, tenant: str | None = None) -> PackedBatch:
    """Pack every cold run; return the sums."""
    done, after = PackedBatch(None), START
    async with await connect_postgres(dsn) as connection:
        while True:
            some = await pack_next(connection, after, 0, tenant)
            done = PackedBatch(None, *(a + b for a, b in zip(done[1:], some[1:], strict=True)))
            if some.after is None:
                return done
            after = some.after


async def packed_events(dsn: str) -> dict[str, list[PackedEvent]]:
    """Return the events of all traces, by workflow id."""
    async with await connect_postgres(dsn) as connection:
        reader = TraceReader(connection)
        found = await connection.execute(
            "SELECT tenant, workflow_id, trace, trace_ids::text[] FROM episodes"
            " WHERE trace IS NOT NULL ORDER BY 1, 2"
        )
        return {row[1]: await reader.events(*row) for row in await found.fetchall()}
