"""Bytes on disk of a workload with repetition: packed, and with its repeated runs merged.

Seven of ten runs repeat an earlier one of their user: equal query, context and calls, other ids,
times and results. Most of them succeed, so that about 40 % of all runs are merged.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import orjson
from psycopg import AsyncConnection

from agents.memory.assembling import StepTarget, assemble_next
from agents.memory.embedding import GuardedEmbedder
from agents.memory.worker import BATCH as ROWS
from bench.support.backend_cpu import backend_cpu_s
from bench.support.measuring import echo
from bench.support.memory_load import SPACE_MS, RunMaker
from bench.support.memory_storing import store_runs
from bench.support.packed_storage import measure_packing, stored_bytes
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.store.merging import ConsolidationSweep
from memory.store.vectors import can_store_vectors, use_model
from sinks.connections import connect_postgres
from sinks.postgres.packing.writing import LEAST_COLD_S

RUNS: Final = 6_000
REPEATED: Final = 0.72
_ROUTINE: Final = 0.8
"""Confidence of a repeated run: none of them is a surprise."""
_TRACES: Final = "SELECT sum(pg_column_size(trace) + pg_column_size(trace_ids)) FROM episodes"
_FULL: Final = "VACUUM FULL episodes, episode_vectors"


async def measure_merging(dsn: str, runs: int = RUNS) -> dict[str, Any]:
    """Return the ratios to the events' JSON in a migrated database, and what was merged.

    `merged_run_saves`: the share of an average run's bytes that merging saves; of those beside its
    packed events, which stay: `merged_episode_saves`.
    """
    begin = round((time.time() - LEAST_COLD_S - 3_600) * 1000) - runs * SPACE_MS
    _events, raw = await store_runs(dsn, repeating(runs, begin))
    embedder = WordLlamaEmbedder()
    async with await connect_postgres(dsn) as connection:
        await can_store_vectors(connection)
        model = await use_model(connection, embedder)
        target = StepTarget(connection, GuardedEmbedder(embedder), model.id)
        while (await assemble_next(target, ROWS, 0.0)).rows:
            pass
        packed = await measure_packing(connection, raw)
        await connection.execute(_FULL)
        whole = await stored_bytes(connection)
        sweep, cpu = await _merged(connection)
        await connection.execute(_FULL)
        merged = await stored_bytes(connection)
        traces = await _trace_bytes(connection)
    saved = (whole - merged) / max(1, sweep.merged)
    return {
        "storage_packed_ratio": packed["storage_packed_ratio"],
        "storage_merged_ratio": round(merged / raw, 3),
        "merged_share": round(sweep.merged / runs, 3),
        "merged_run_saves": round(saved / (whole / runs), 3),
        "merged_episode_saves": round(saved / ((whole - traces) / runs), 3),
        "merged_per_cpu_s": round(sweep.merged / max(cpu, 1e-9)),
    }


async def _trace_bytes(connection: AsyncConnection[Any]) -> int:
    """Return the bytes of packed events and their ids, which merged runs keep."""
    row = await (await connection.execute(_TRACES)).fetchone()
    return int(row[0]) if row else 0


async def _merged(connection: AsyncConnection[Any]) -> tuple[ConsolidationSweep, float]:
    sweep = ConsolidationSweep()
    own, backend = time.process_time(), backend_cpu_s(connection)
    while await sweep.step(connection):
        pass
    cpu = time.process_time() - own + backend_cpu_s(connection) - backend
    echo(f"{sweep.merged:,} runs merged into {sweep.groups:,}, {cpu:.1f} s of CPU")
    return sweep, cpu


def repeating(runs: int, begin_ms: int, seed: int = 7) -> Iterator[list[bytes]]:
    """Yield the events of each run as JSON; some repeat an earlier run."""
    draw = random.Random(seed)
    first: list[list[Any]] = []
    for run in RunMaker(runs, begin_ms, seed):
        events = [orjson.loads(each) for each in run]
        if first and draw.random() < REPEATED:
            events = _again(draw, draw.choice(first), events)
        else:
            first.append(events)
        yield [orjson.dumps(each) for each in events]


def _again(draw: random.Random, earlier: list[Any], own: list[Any]) -> list[dict[str, Any]]:
    """Return an earlier run with ids, times and results of its own."""
    at, found = own[0]["timestamp"], []
    for place, each in enumerate(earlier):
        again = orjson.loads(orjson.dumps(each))
        again["id"] = str(UUID(int=draw.getrandbits(128), version=4))
        again["workflow_id"] = own[0]["workflow_id"]
        again["timestamp"] = at + place * 700
        if again["event_type"] == "speculation_start":
            again["confidence"] = round(_ROUTINE + 0.2 * draw.random(), 4)
        if "result" in again["data"]:
            again["data"]["result"]["execution_time_ms"] = round(draw.random() * 900, 2)
        found.append(again)
    return found
