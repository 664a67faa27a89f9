"""Fills the tables of Postgres as the sinks would have, from several processes at once.

Their indexes are built afterwards.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import psycopg
from psycopg import sql

from bench.support.learned_rows import MadeEvents, Row
from bench.support.measuring import echo
from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import CONTEXT
from sinks.connections import connect_postgres
from sinks.postgres.episodes import EpisodeSink, encode_events
from sinks.postgres.index_building import without_indexes
from sinks.postgres.partitions import ensure_partitions

DAYS: Final = 8
"""Over which the events are spread."""
HISTORY_OF_CONTEXT: Final = 10
"""Steps of each context's thresholds."""
_CHUNK: Final = 50_000
_BATCH: Final = 1_000
_DAY_MS: Final = 86_400_000
_HISTORY: Final = """
    COPY threshold_history (
        tenant, workflow_type, path, epoch, "offset", speculate, suggest, outcomes, learner, at
    ) FROM STDIN
"""


async def make_days(dsn: str) -> int:
    """Create the partitions of the days; return where their events begin, Unix ms."""
    async with await connect_postgres(dsn) as connection:
        await ensure_partitions(connection, datetime.now(UTC).date(), DAYS + 1, 1)
    return time.time_ns() // 1_000_000 - DAYS * _DAY_MS


def fill_events(dsn: str, made: MadeEvents, count: int, begin: int) -> None:
    """Store `count` events, the first at `begin`, Unix ms, the last now."""
    parts = [range(first, min(first + _CHUNK, count)) for first in range(0, count, _CHUNK)]
    gap_ms = DAYS * _DAY_MS / max(1, count)

    def fill() -> None:
        if len(parts) < 2:
            for part in parts:
                store_part(dsn, made, part, begin, gap_ms)
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context) as pool:
            waiting = [pool.submit(store_part, dsn, made, part, begin, gap_ms) for part in parts]
            for number, each in enumerate(waiting, 1):
                each.result()
                if number % 10 == 0 or number == len(parts):
                    echo(f"{min(number * _CHUNK, count):,} events are stored")

    asyncio.run(_filled(dsn, "episodic_events", fill))


def store_part(dsn: str, made: MadeEvents, part: range, begin: int, gap_ms: float) -> None:
    """Store the events of these numbers in one transaction."""
    with (
        psycopg.connect(dsn) as connection,
        connection.cursor() as cursor,
        cursor.copy(EpisodeSink.sql["copy_table"]) as copy,
    ):
        for first in range(part.start, part.stop, _BATCH):
            events = [
                made.event(number, begin + round(number * gap_ms), "")
                for number in range(first, min(first + _BATCH, part.stop))
            ]
            copy.write(b"".join(encode_events([orjson.dumps(each) for each in events])))


def fill_history(dsn: str, rows: Iterable[Row], epoch: int) -> int:
    """Store steps of the thresholds of rows, in the log epoch before; return how many."""
    count = 0

    def fill() -> None:
        nonlocal count
        with (
            psycopg.connect(dsn) as connection,
            connection.cursor() as cursor,
            cursor.copy(_HISTORY) as copy,
        ):
            for key, row in rows:
                for step in _steps(key, row, epoch - 1) if key.startswith(CONTEXT) else ():
                    copy.write_row(step)
                    count += 1

    asyncio.run(_filled(dsn, "threshold_history", fill))
    return count


def _steps(key: bytes, row: bytes, epoch: int) -> Iterator[tuple[Any, ...]]:
    last = threshold_from_row(key, row)
    for step in range(HISTORY_OF_CONTEXT):
        at = datetime.fromtimestamp(last.at / 1000 - HISTORY_OF_CONTEXT + step, UTC)
        speculate = last.speculate - step / 1000
        yield (
            last.tenant, last.workflow_type, last.path, epoch, step, speculate, last.suggest,
            step, last.learner, at,
        )  # fmt: skip


async def _filled(dsn: str, table: str, fill: Callable[[], Any]) -> None:
    """Call what fills a table by other connections; build its indexes afterwards."""
    async with await connect_postgres(dsn) as connection:
        await connection.execute("SET maintenance_work_mem = '256MB'")
        async with without_indexes(connection, table):
            fill()
            begun = time.monotonic()
        await connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table)))
    echo(f"indexes of {table} are built, in {time.monotonic() - begun:.1f} s")
