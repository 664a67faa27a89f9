"""Episode sink, all its rules on, next to bare psycopg COPY through a stage into the same tables.

The worker drains a backlog of single-event records: fetch, decode, check, store with offsets. The
anchor copies prebuilt blocks with the same batch size and one commit each, and does nothing else.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import psycopg

from bench.measuring import (
    Running,
    events,
    frames,
    fresh_stack,
    produce,
    say,
    worker_environment,
)
from deploy.local import Addresses
from sinks.connections import connect_postgres
from sinks.episodes import EpisodeSink, encode_event
from sinks.progress import stored_offsets
from topics.catalogue import EPISODES_GROUP, EVENTS
from topics.epoch import read_epoch

BATCH = 10_000
PATIENCE_S = 300.0


def run(kafka: str, count: int = 200_000) -> dict[str, Any]:
    """Return the figures."""
    with fresh_stack(kafka) as (addresses, folder):
        say(f"{count} events, one event per record, on {kafka}")
        asyncio.run(produce(addresses.kafka, frames(count, 1)))
        ours = _worker(addresses, folder, count)
        say(f"episode sink: {ours:,.0f} rows/s")
        bare = asyncio.run(_staged_copy(addresses.postgres, count))
        say(f"bare COPY through a stage, {BATCH} rows a batch: {bare:,.0f} rows/s")
    return {
        "rows_per_s": round(ours),
        "ratio_staged_copy": round(ours / bare, 2),
        "staged_copy_rows_per_s": round(bare),
        "framing": f"one event per record; the anchor copies prebuilt blocks of {BATCH} rows",
        "events": count,
        "broker": kafka,
    }


def _worker(addresses: Addresses, folder: Path, count: int) -> float:
    """Return the rows/s of a worker between its first and its last commit."""
    environment = worker_environment(addresses, folder / "agent")
    argv = [sys.executable, "-m", "cli", "worker", "episodes"]
    with Running(folder, "agent", argv, environment):
        marks = asyncio.run(_commits(addresses, count))
    (begun, before), (ended, after) = marks[0], marks[-1]
    return (after - before) / (ended - begun)


async def _commits(addresses: Addresses, count: int) -> list[tuple[float, int]]:
    """Return (time, rows stored so far) at each commit seen, up to `count` rows."""
    epoch = (await read_epoch(addresses.kafka)).number
    marks: list[tuple[float, int]] = []
    # One connection for all looks: opening one costs Postgres as much as a thousand rows.
    async with (
        asyncio.timeout(PATIENCE_S),
        await connect_postgres(addresses.postgres) as connection,
    ):
        while not marks or marks[-1][1] < count:
            reached = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch)
            rows = sum(reached.values())
            if rows and (not marks or rows > marks[-1][1]):
                marks.append((time.perf_counter(), rows))
            await asyncio.sleep(0.02)
    return marks


async def _staged_copy(dsn: str, count: int) -> float:
    """Return the rows/s of the same rows, under other ids, as prebuilt blocks."""
    blocks, block = [], []
    for _partition, _key, raw in events(count):
        event = orjson.loads(raw)
        event["tenant"] = "bench-bare"
        block.append(encode_event(orjson.dumps(event)))
        if len(block) == BATCH:
            blocks.append(b"".join(block))
            block = []
    sql = EpisodeSink.sql
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(sql["create_stage"])
        begun = time.perf_counter()
        for text in blocks:
            async with connection.transaction(), connection.cursor() as cursor:
                async with cursor.copy(sql["copy_stage"]) as copy:
                    await copy.write(text)
                await cursor.execute(sql["merge_stage"])
        return len(blocks) * BATCH / (time.perf_counter() - begun)
