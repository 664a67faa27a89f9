"""The episode sink with all its features, next to bare psycopg into the same tables and indexes.

The worker drains a backlog of single-event records: fetch, decode, validate, store with offsets.
The anchors only write prepared rows, in batches as large as the worker's, one commit each: COPY
into the table, COPY through a stage and a merge, executemany. Each begins with an empty table and
existing WAL files.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any, Final

import orjson
import psycopg
from psycopg import AsyncConnection

from bench.support.measuring import (
    Running,
    echo,
    events,
    fresh_stack,
    produce,
    worker_environment,
)
from bench.support.repeating import ratio, repeated
from deploy.local import Addresses
from sinks.connections import connect_postgres
from sinks.postgres.episodes import EpisodeSink, encode_events
from sinks.postgres.migrate import migrate
from sinks.postgres.progress import stored_offsets
from topics.catalogue import EPISODES_GROUP, EVENTS
from topics.epoch import read_epoch

REPEAT: Final = 5
PATIENCE_S: Final = 900.0
ONCE: Final = 10_000
"""Rows per batch in the warm-up."""
MANY: Final = 100
"""Rows of one executemany."""
MANY_SHARE: Final = 10
"""executemany gets a tenth of the rows: its rate does not depend on their number."""
LOOK_S: Final = 0.05
"""Polling interval of the stored offsets; there is a commit every .3 s."""
COLUMNS: Final = (
    "id", "tenant", "event_type", "workflow_type", "workflow_id", "task_id", "user_id", "agent_id",
    "session_id", "timestamp", "tool_id", "success", "confidence", "data", "extra",
)  # fmt: skip
_INSERT: Final = (
    f"INSERT INTO episodic_events ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * 15)})"
    " ON CONFLICT (timestamp, tenant, id) DO NOTHING"
)

Connection = AsyncConnection[Any]


def run(kafka: str, count: int = 400_000, repeat: int = REPEAT) -> dict[str, Any]:
    """Return the medians of several rounds, ratios of each round's own figures among them."""
    echo(f"{count:,} events, one event per record, on {kafka}")
    return {
        **repeated(lambda number: _round(kafka, count, number), repeat),
        "framing": "one event per record in filled batches; anchors: prebuilt blocks of as many "
        f"rows as the worker's batches, executemany of {MANY}; all indexes, one daily partition",
        "events": count,
        "broker": kafka,
    }


def _round(kafka: str, count: int, number: int) -> dict[str, float | None]:
    with fresh_stack(kafka) as (addresses, folder):
        asyncio.run(produce(addresses.kafka, events(count)))
        asyncio.run(_write_once(addresses.postgres, count))
        ours, batch = _worker(addresses, folder, count)
        anchors = asyncio.run(_anchors(addresses.postgres, count, batch, number))
    found: dict[str, float | None] = {
        "rows_per_s": round(ours),
        "ratio_staged_copy": ratio(ours, anchors["staged_copy"]),
        "ratio_bare_copy": ratio(ours, anchors["bare_copy"]),
        "ratio_executemany": ratio(ours, anchors["executemany"]),
        **{f"{name}_rows_per_s": round(rate) for name, rate in anchors.items()},
        "rows_per_batch": batch,
    }
    echo(f"round {number + 1}: {found}")
    return found


async def _write_once(dsn: str, count: int) -> None:
    """Let Postgres create its WAL files, which all later runs reuse."""
    await migrate(dsn)
    lines = encode_events([raw for _partition, _key, raw in events(count)])
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await _bare_copy(connection, _blocks(lines, ONCE))
        await _empty(connection)


async def _empty(connection: Connection) -> None:
    await connection.execute("TRUNCATE episodic_events")
    await connection.execute("CHECKPOINT")  # so that no run pays for earlier writes


def _worker(addresses: Addresses, folder: Path, count: int) -> tuple[float, int]:
    """Return the rows/s of a worker between its first and its last commit, and rows a commit."""
    environment = worker_environment(addresses, folder / "agent")
    argv = [sys.executable, "-P", "-m", "cli", "worker", "episodes"]
    with Running(folder, "agent", argv, environment):
        marks = asyncio.run(_commits(addresses, count))
    if len(marks) < 3:
        raise ValueError("two commits held the whole backlog: give more --events")
    (begun, before), (ended, after) = marks[0], marks[-1]
    batch = median_low(rows - last for (_, last), (_, rows) in pairwise(marks))
    return (after - before) / (ended - begun), batch


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
            await asyncio.sleep(LOOK_S)
    return marks


async def _anchors(dsn: str, count: int, batch: int, number: int) -> dict[str, float]:
    """Return the rows/s of each anchor; the order rotates from round to round."""
    lines = encode_events([raw for _partition, _key, raw in events(count)])
    sides: list[tuple[str, Callable[[Connection], Awaitable[float]]]] = [
        ("bare_copy", lambda at: _bare_copy(at, _blocks(lines, batch))),
        ("staged_copy", lambda at: _staged_copy(at, _blocks(lines, batch))),
        ("executemany", lambda at: _executemany(at, count // MANY_SHARE)),
    ]
    found = {}
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(EpisodeSink.sql["create_stage"])
        for place in range(len(sides)):
            name, side = sides[(place + number) % len(sides)]
            await _empty(connection)
            found[name] = await side(connection)
    return found


def _blocks(lines: Sequence[bytes], batch: int) -> list[tuple[int, bytes]]:
    """Return (rows, text) of each batch."""
    parts = [lines[begin : begin + batch] for begin in range(0, len(lines), batch)]
    return [(len(part), b"".join(part)) for part in parts]


async def _bare_copy(connection: Connection, blocks: Sequence[tuple[int, bytes]]) -> float:
    begun = time.perf_counter()
    for _rows, text in blocks:
        async with (
            connection.transaction(),
            connection.cursor() as cursor,
            cursor.copy(EpisodeSink.sql["copy_table"]) as copy,
        ):
            await copy.write(text)
    return sum(rows for rows, _text in blocks) / (time.perf_counter() - begun)


async def _staged_copy(connection: Connection, blocks: Sequence[tuple[int, bytes]]) -> float:
    sql = EpisodeSink.sql
    begun = time.perf_counter()
    for _rows, text in blocks:
        async with connection.transaction(), connection.cursor() as cursor:
            async with cursor.copy(sql["copy_stage"]) as copy:
                await copy.write(text)
            await cursor.execute(sql["merge_stage"])
    return sum(rows for rows, _text in blocks) / (time.perf_counter() - begun)


async def _executemany(connection: Connection, count: int) -> float:
    rows = [_row(orjson.loads(raw)) for _partition, _key, raw in events(count)]
    begun = time.perf_counter()
    for at in range(0, len(rows), MANY):
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.executemany(_INSERT.encode(), rows[at : at + MANY])
    return len(rows) / (time.perf_counter() - begun)


def _row(event: dict[str, Any]) -> list[Any]:
    del event["origin"]
    event["timestamp"] = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
    event["data"] = orjson.dumps(event["data"]).decode()
    return [event.get(column) for column in COLUMNS]
