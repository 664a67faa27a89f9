"""Measures an HNSW index after many deletes: rebuilt, and vacuumed, on equal partitions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from psycopg import AsyncConnection, sql

from bench.support.backend_cpu import backend_cpu_s
from bench.support.measuring import echo
from sinks.connections import connect_postgres
from sinks.postgres.reclaiming import maintain_indexes

ROWS: Final = 10_000
DELETED_SHARE: Final = 0.15
_VACUUMED: Final = "episode_vectors_0"
_REBUILT: Final = "episode_vectors_1"
_FILL: Final = """
    INSERT INTO {} SELECT tenant, n, 1, 'refund', NULL, now(), n,
        (SELECT array_agg(cos(n * k + n %% 40)::real) FROM generate_series(1, 256) AS k)
            ::halfvec(256)
    FROM generate_series(1, %(rows)s) AS n, (
        SELECT 'tenant-' || t AS tenant FROM generate_series(1, 500) t
        WHERE satisfies_hash_partition('episode_vectors'::regclass, 16, %(part)s, 'tenant-' || t)
        LIMIT 1
    ) s
"""
_DELETE: Final = "DELETE FROM {} WHERE episode %% 100 < %(percent)s"


async def measure_rebuilding(dsn: str, rows: int = ROWS) -> dict[str, float]:
    """Delete 15 % of two partitions of `rows` vectors; return seconds of CPU and wall of both ways.

    In a migrated database. `vacuum_*`: VACUUM, which repairs the graph; `rebuild_*`: REINDEX
    CONCURRENTLY and VACUUM, as after a purge.
    """
    found: dict[str, float] = {"vectors": rows, "deleted_vectors": round(rows * DELETED_SHARE)}
    async with await connect_postgres(dsn) as connection:
        await connection.execute("SET maintenance_work_mem = '256MB'")
        await connection.execute("SET max_parallel_maintenance_workers = 0")
        for part, table in enumerate((_VACUUMED, _REBUILT)):
            await _fill(connection, table, part, rows)
        vacuum = sql.SQL("VACUUM {}").format(sql.Identifier(_VACUUMED))
        found |= await _timed(connection, "vacuum", lambda: connection.execute(vacuum))
        found |= await _timed(connection, "rebuild", lambda: maintain_indexes(connection, echo))
    return found


async def _fill(connection: AsyncConnection[Any], table: str, part: int, rows: int) -> None:
    name = sql.Identifier(table)
    off = sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = false)")
    await connection.execute(off.format(name))
    await connection.execute(sql.SQL(_FILL).format(name), {"rows": rows, "part": part})
    percent = round(100 * DELETED_SHARE)
    await connection.execute(sql.SQL(_DELETE).format(name), {"percent": percent})
    await connection.execute("SELECT pg_stat_force_next_flush()")


async def _timed(
    connection: AsyncConnection[Any], name: str, work: Callable[[], Awaitable[Any]]
) -> dict[str, float]:
    begun, cpu = time.perf_counter(), backend_cpu_s(connection)
    await work()
    return {
        f"{name}_s": round(time.perf_counter() - begun, 2),
        f"{name}_cpu_s": round(backend_cpu_s(connection) - cpu, 2),
    }
