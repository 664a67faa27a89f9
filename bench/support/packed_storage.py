"""Bytes on disk when the runs are packed, as a multiple of the events' JSON."""

from __future__ import annotations

import time
from typing import Any

from psycopg import AsyncConnection

from bench.support.backend_cpu import backend_cpu_s
from bench.support.measuring import echo
from sinks.postgres.packing.sweep import PackSweep
from sinks.postgres.packing.writing import LEAST_COLD_S

_SIZES = """
    SELECT (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)
            FROM pg_partition_tree('episodic_events'))
        + (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)
            FROM pg_partition_tree(to_regclass('episode_vectors')))
        + pg_total_relation_size('episodes') + pg_total_relation_size('episode_outbox')
        + pg_total_relation_size('trace_dictionaries')
"""


async def stored_bytes(connection: AsyncConnection[Any]) -> int:
    """Return the bytes of events, episodes, vectors, outbox and dictionaries with their indexes."""
    row = await (await connection.execute(_SIZES)).fetchone()
    return int(row[0]) if row else 0


async def measure_packing(connection: AsyncConnection[Any], raw: int) -> dict[str, float]:
    """Pack all runs that ended more than a day ago; return the figures.

    `raw`: bytes of all stored events as JSON. The tables are rewritten afterwards: space of deleted
    rows is reused by later ones, and goes with a dropped partition.
    """
    sweep = PackSweep(LEAST_COLD_S)
    begun, own, backend = time.perf_counter(), time.process_time(), backend_cpu_s(connection)
    while await sweep.step(connection):
        pass
    cpu = time.process_time() - own + backend_cpu_s(connection) - backend
    echo(f"{sweep.runs:,} runs packed in {time.perf_counter() - begun:.1f} s, {cpu:.1f} s of CPU")
    await connection.execute("VACUUM FULL episodic_events, episodes, episode_outbox")
    return {
        "storage_packed_ratio": round(await stored_bytes(connection) / raw, 3),
        "packed_runs": sweep.runs,
        "packed_content_ratio": round(sweep.bytes_after / max(1, sweep.bytes_before), 3),
        "packed_runs_per_cpu_s": round(sweep.runs / max(cpu, 1e-9)),
    }
