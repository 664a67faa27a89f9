"""Measures an HNSW index after deletes, by size and share: vacuumed, and rebuilt."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection, sql

from bench.support.backend_cpu import backend_cpu_s
from bench.support.measuring import echo
from sinks.connections import connect_postgres
from sinks.postgres.reclaiming import DeadRows, Upkeep, clean, dead_rows

SIZES: Final = (1_000, 4_000, 16_000)
SHARES: Final = (0.02, 0.05, 0.15, 0.4)
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


async def measure_rebuilding(
    dsn: str, sizes: Sequence[int] = SIZES, shares: Sequence[float] = SHARES
) -> dict[str, Any]:
    """Delete shares of two equal partitions of vectors; return seconds of both ways to free them.

    In a migrated database. `indexes`: for each size and share `vacuum_*`, VACUUM, which repairs the
    graph, and `rebuild_*`, REINDEX CONCURRENTLY and VACUUM; `sinks.postgres.reclaiming` does one of
    both. Raises `RuntimeError` if Postgres' statistics do not show the deleted rows.
    """
    found: list[dict[str, float]] = []
    ways: tuple[Upkeep, ...] = ("vacuum", "rebuild")
    async with await connect_postgres(dsn) as connection:
        await connection.execute("SET maintenance_work_mem = '256MB'")
        await connection.execute("SET max_parallel_maintenance_workers = 0")
        for rows, share in itertools.product(sizes, shares):
            found.append({"vectors": rows, "deleted": round(rows * share)})
            for part, way in enumerate(ways):
                deleted = await _filled(connection, f"episode_vectors_{part}", part, rows, share)
                found[-1] |= await _timed(connection, deleted, way)
            echo(f"indexes: {found[-1]}")
    return {"indexes": found}


async def _filled(
    connection: AsyncConnection[Any], table: str, part: int, rows: int, share: float
) -> DeadRows:
    name = sql.Identifier(table)
    off = sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = false)")
    await connection.execute(off.format(name))
    await connection.execute(sql.SQL("TRUNCATE {}").format(name))
    await connection.execute(sql.SQL(_FILL).format(name), {"rows": rows, "part": part})
    given = {"percent": round(100 * share)}
    await connection.execute(sql.SQL(_DELETE).format(name), given)
    await connection.execute("SELECT pg_stat_force_next_flush()")
    for each in await dead_rows(connection):
        if each.table == table:
            return each
    raise RuntimeError(f"Postgres' statistics show no deleted row of {table}")


async def _timed(
    connection: AsyncConnection[Any], deleted: DeadRows, way: Upkeep
) -> dict[str, float]:
    begun, cpu = time.perf_counter(), backend_cpu_s(connection)
    await clean(connection, deleted, way, echo)
    return {
        f"{way}_s": round(time.perf_counter() - begun, 2),
        f"{way}_cpu_s": round(backend_cpu_s(connection) - cpu, 2),
    }
