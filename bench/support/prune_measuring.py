"""Measures pruning of one tenant: whether its time grows as the number of rows that go.

Of three kinds of rows: cases beyond the limit of their users, runs that lose their packed events,
and merged runs of which nothing is left. None has a vector: deleting one touches no index.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from bench.support.backend_cpu import backend_cpu_s
from memory.store.limits import RetentionLimits
from memory.store.pruning import BATCH, PruneSweep
from sinks.connections import connect_postgres

SIZES: Final = (20_000, 40_000)
_FILL: Final = """
    INSERT INTO episodes (id, tenant, workflow_type, workflow_id, user_id, started, ended, reward,
        usefulness, query, query_hash, context_hash, tools, events, state, trace, trace_ids)
    SELECT n, %(tenant)s, 'type-' || n %% 12, 'run-' || n, 'user-' || n %% 10, at, at,
        n %% 7 / 7.0, n %% 3, 'case ' || n, n / 4, n %% 12, ARRAY['find', 'tool-' || n %% 5], 4,
        %(state)s, CASE WHEN %(packed)s THEN '\\x00'::bytea END,
        CASE WHEN %(packed)s THEN ARRAY[gen_random_uuid(), gen_random_uuid()] END
    FROM generate_series(1, %(rows)s) AS n,
        LATERAL (SELECT now() - interval '40 days' + n * interval '1 second' AS at) AS t
"""
_KINDS: Final[dict[str, tuple[str, bool, RetentionLimits]]] = {
    "cases": ("live", False, RetentionLimits(0, 0, 200, 0)),
    "events": ("live", True, RetentionLimits(0, 10, 0, 0)),
    "merged": ("merged", False, RetentionLimits(30, 0, 0, 0)),
}
"""State of the rows, whether they have packed events, and the limits that they are beyond."""


_READ: Final = """
    SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'episodes'
"""


class PruneCost(NamedTuple):
    """What pruning one tenant took."""

    cpu_s: float
    """Of the server's process."""
    read: int
    """Rows of the table of episodes that were read."""


async def measure_pruning(
    dsn: str, sizes: tuple[int, int] = SIZES, batch: int = BATCH
) -> dict[str, float]:
    """Prune tenants of so many rows in a migrated database; return the figures.

    `prune_KIND_cpu_s`: seconds of CPU of the larger one; `prune_KIND_ratio`: how many times that of
    the smaller one, so 2 for double the rows means that time is linear; `prune_KIND_read_ratio`:
    the same of the rows that were read. `prune_s`: wall time of all, with the making of the rows.
    """
    found: dict[str, float] = {"pruned_rows": sizes[1]}
    begun = time.perf_counter()
    async with await connect_postgres(dsn) as connection:
        for kind in _KINDS:
            small, large = [await _pruned(connection, kind, rows, batch) for rows in sizes]
            found[f"prune_{kind}_cpu_s"] = round(large.cpu_s, 3)
            found[f"prune_{kind}_ratio"] = round(large.cpu_s / small.cpu_s, 2)
            found[f"prune_{kind}_read_ratio"] = round(large.read / small.read, 2)
    return found | {"prune_s": round(time.perf_counter() - begun, 1)}


async def _pruned(connection: AsyncConnection[Any], kind: str, rows: int, batch: int) -> PruneCost:
    """Prune a new tenant with `rows` rows."""
    state, packed, limits = _KINDS[kind]
    tenant = f"prune-{kind}-{rows}"
    given = {"tenant": tenant, "rows": rows, "state": state, "packed": packed}
    await connection.execute(_FILL.encode(), given)
    await connection.execute("VACUUM ANALYZE episodes")
    before, begun = await _read(connection), backend_cpu_s(connection)
    sweep = PruneSweep(limits, tenant, batch)
    while await sweep.step(connection):
        pass
    cost = PruneCost(backend_cpu_s(connection) - begun, await _read(connection) - before)
    left = await connection.execute(
        "SELECT count(*) FROM episodes WHERE tenant = %s AND (trace IS NOT NULL OR NOT %s)",
        (tenant, packed),
    )
    ((count,),) = await left.fetchall()
    assert count <= max(rows // 8, 200 * 10), f"{count} of {rows} {kind} are left"
    return cost


async def _read(connection: AsyncConnection[Any]) -> int:
    """Return how many rows of episodes have been read so far."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    row = await (await connection.execute(_READ)).fetchone()
    return int(row[0]) if row else 0
