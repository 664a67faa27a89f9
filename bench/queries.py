"""The queries of memory on a large table of episodes, and what each secondary index is worth.

Episodes are loaded by COPY into the real tables, a tenth of them per day. Every query runs with
random parameters from one connection, then again without its index (the DROP is rolled back). The
cost of an index is its size, and the rate at which the sink's statement stores rows without it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, get_args

import psycopg
from psycopg import AsyncConnection, sql

from bench.support.measuring import echo
from deploy.local import Stack, StackConfig
from headstart.events.schema import EventType
from sinks.connections import connect_postgres
from sinks.postgres.copy_format import encode_time
from sinks.postgres.episodes import EpisodeSink
from sinks.postgres.migrate import migrate
from sinks.postgres.partitions import ensure_partitions
from sinks.postgres.statements import load_statements
from topics.catalogue import DAY_MS

DAYS: Final = 10
GOAL_ROWS: Final = 10_000_000
BATCH: Final = 10_000
SAMPLES: Final = 200
SLOW_SAMPLES: Final = 20
"""Without an index: some take seconds."""
LONGEST_S: Final = 10
INGESTED: Final = 50_000
"""Rows whose rate is measured with and without each index."""
TENANTS, TYPES, TOOLS, CUSTOMERS = 10, 50, 20, 10_000
STORY: Final = 20
"""Events of one workflow."""
KINDS: Final[tuple[str, ...]] = get_args(EventType)
"""The first two are frequent: 28 of 60 episodes each, the others one each."""
TURNS: Final = 28 * KINDS[:2] + KINDS[2:]

Connection = AsyncConnection[Any]
_EVENTS: Final = load_statements("queries")["events_of_workflow"].decode()


class QueriedContext(NamedTuple):
    """The range to draw parameters from: rows so far, and the first day."""

    rows: int
    begin_ms: int
    step_ms: float

    def at(self, number: int) -> datetime:
        """Return when an episode happened."""
        return datetime.fromtimestamp((self.begin_ms + number * self.step_ms) / 1000, UTC)


@dataclass(frozen=True)
class Query:
    """A query of the episodic memory, and its index; None: the primary key."""

    statement: str
    index: str | None


def _parameters(draw: random.Random, place: QueriedContext) -> dict[str, Any]:
    at = place.at(place.rows)
    number = draw.randrange(place.rows)
    return {
        "tenant": f"tenant-{number // STORY % TENANTS}",
        "frequent": draw.choice(KINDS[:2]),
        "rare": draw.choice(KINDS[2:]),
        "tool": f"tool-{draw.randrange(TOOLS)}",
        "context": f'{{"customer": "customer-{number // STORY % CUSTOMERS}"}}',
        "workflow_id": f"run-{number // STORY}",
        "limit": 100,
        "since": at - timedelta(hours=1),
        "until": at,
    }


_COLUMNS: Final = "SELECT id, timestamp, data FROM episodic_events"
_NEWEST: Final = f"{_COLUMNS} WHERE event_type ="
_FIRST: Final = "ORDER BY timestamp DESC LIMIT %(limit)s"
QUERIES: Final = {
    "story of a workflow": Query(_EVENTS, "idx_episodic_workflow_time"),
    "how often a tool succeeded, all time": Query(
        "SELECT count(*), count(*) FILTER (WHERE success) FROM episodic_events"
        " WHERE tool_id = %(tool)s",
        "idx_episodic_tool_time",
    ),
    "how often a tool succeeded, last hour": Query(
        "SELECT count(*), count(*) FILTER (WHERE success) FROM episodic_events"
        " WHERE tool_id = %(tool)s AND timestamp > %(since)s AND timestamp <= %(until)s",
        "idx_episodic_tool_time",
    ),
    "newest of a frequent kind": Query(f"{_NEWEST} %(frequent)s {_FIRST}", None),
    "newest of a rare kind": Query(f"{_NEWEST} %(rare)s {_FIRST}", "idx_episodic_rare_type_time"),
    "newest of a tenant": Query(
        f"{_COLUMNS} WHERE tenant = %(tenant)s AND timestamp > %(since)s"
        " AND timestamp <= %(until)s ORDER BY timestamp DESC LIMIT %(limit)s",
        None,
    ),
    "count of the last hour": Query(
        "SELECT count(*) FROM episodic_events WHERE timestamp > %(since)s"
        " AND timestamp <= %(until)s",
        "idx_episodic_timestamp",
    ),
}


def run(rows: int = 1_000_000) -> dict[str, Any]:
    """Return a table of queries and one of indexes, at `rows` episodes; no broker is needed."""
    with (
        TemporaryDirectory(prefix="headstart-bench-") as folder,
        Stack(StackConfig(data=Path(folder) / "stack", kafka="embedded")) as stack,
    ):
        return asyncio.run(_measured(stack.addresses.postgres, rows))


async def _measured(dsn: str, rows: int) -> dict[str, Any]:
    await migrate(dsn)
    now = datetime.now(UTC)
    begin = datetime.combine(now.date() - timedelta(days=DAYS - 1), datetime.min.time(), UTC)
    place = QueriedContext(0, round(begin.timestamp() * 1000), DAY_MS * DAYS / rows)
    async with await connect_postgres(dsn) as connection:
        await ensure_partitions(connection, now.date(), DAYS - 1, 1)
        first = place._replace(rows=rows // DAYS)
        await _load(connection, place, first.rows)
        early = {name: await _timed(connection, each, first) for name, each in QUERIES.items()}
        full = place._replace(rows=rows)
        await _load(connection, first, rows)
        table = [await _query(connection, name, full, early[name]) for name in QUERIES]
        indexes = await _indexes(connection, full)
    return {
        "p95_ms": max(each["p95_ms"] for each in table if each["bounded"]),
        "p95_ms_at_10_million": max(
            each["p95_ms_at_10_million"] for each in table if each["bounded"]
        ),
        "queries": table,
        "indexes": indexes,
        "rows": rows,
        "framing": f"one connection, {SAMPLES} draws each, {DAYS} daily partitions, 64 MB of "
        "shared buffers; at 10 million: measured there, or by the power law from a tenth of the "
        "rows to all; bounded: reads a bounded number of rows",
    }


async def _load(connection: Connection, place: QueriedContext, until: int) -> None:
    """Store episodes from `place.rows` up to number `until` as the sink does."""
    begun = time.monotonic()
    for at in range(place.rows, until, BATCH):
        lines = b"".join(_lines(place, at, min(until, at + BATCH)))
        async with connection.transaction():
            await _store(connection, lines)
    await connection.execute("VACUUM ANALYZE episodic_events")
    echo(f"{until:,} episodes, loaded and analysed in {time.monotonic() - begun:.0f} s")


async def _store(connection: Connection, lines: bytes) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(EpisodeSink.sql["copy_table"]) as copy,
    ):
        await copy.write(lines)


def _lines(place: QueriedContext, begin: int, end: int) -> Iterator[bytes]:
    """Yield lines of COPY text: kinds by turns, stories of one tenant each."""
    draw = random.Random(begin)
    for number in range(begin, end):
        story = number // STORY
        kind = TURNS[number % len(TURNS)]
        at = encode_time(int(place.begin_ms + number * place.step_ms))
        tool = f"tool-{min(int(draw.paretovariate(0.7)), TOOLS) - 1}"
        data = (
            f'{{"context":{{"domain":"domain-{story % 5}","complexity":{story % 10 / 10},'
            f'"customer":"customer-{story % CUSTOMERS}"}},"query":"what was ordered in {story}, '
            'and whether it can be refunded","prediction":{"mode":"speculative",'
            '"was_correct":true},"result":{"execution_time_ms":812.5,"gain_ms":400.0}}'
        )
        yield (
            f"{uuid.UUID(int=draw.getrandbits(128))}\ttenant-{story % TENANTS}\t{kind}\t"
            f"workflow-{story % TYPES}\trun-{story}\t{number % STORY}\tuser-{story % 1000}\t\t\t"
            f"{at}\t{tool}\t{'tf'[number % 5 == 0]}\t{draw.random():.4f}\t{data}\t\n"
        ).encode()


async def _timed(
    connection: Connection, query: Query, place: QueriedContext, samples: int = SAMPLES
) -> tuple[float, float]:
    """Return the median and the 95th percentile in ms; infinite if a query timed out."""
    draw = random.Random(11)
    taken = []
    for number in range(samples + samples // 10):
        parameters = _parameters(draw, place)
        begun = time.perf_counter()
        try:
            await (await connection.execute(query.statement.encode(), parameters)).fetchall()
        except psycopg.errors.QueryCanceled:
            return math.inf, math.inf
        if number >= samples // 10:  # the first ones warm the caches
            taken.append((time.perf_counter() - begun) * 1000)
    taken.sort()
    return taken[len(taken) // 2], taken[int(len(taken) * 0.95)]


async def _query(
    connection: Connection, name: str, place: QueriedContext, early: tuple[float, float]
) -> dict[str, Any]:
    query = QUERIES[name]
    p50, p95 = await _timed(connection, query, place)
    found: dict[str, Any] = {
        "query": name,
        "bounded": "all time" not in name,
        "p50_ms": round(p50, 2),
        "p95_ms": round(p95, 2),
        "p95_ms_of_a_tenth": round(early[1], 2),
        "p95_ms_at_10_million": round(p95 * (GOAL_ROWS / place.rows) ** _power(early[1], p95), 2),
        "index": query.index,
    }
    if query.index is not None:
        async with _without(connection, query.index):
            p50, p95 = await _timed(connection, query, place, SLOW_SAMPLES)
        found |= {"p50_ms_without": round(p50, 2), "p95_ms_without": round(p95, 2)}
    echo(f"{found}")
    return found


def _power(tenth: float, whole: float) -> float:
    """Return how the time grows with the rows: not at all, in proportion, or between.

    No query here can do worse: a figure beyond that is noise of the smaller table's few ms.
    """
    return min(1.0, max(0.0, math.log10(whole / tenth)))


@asynccontextmanager
async def _without(connection: Connection, index: str) -> AsyncIterator[None]:
    """Drop an index in a transaction that is rolled back."""
    async with connection.transaction(force_rollback=True):
        await connection.execute(f"SET LOCAL statement_timeout = '{LONGEST_S}s'".encode())
        await connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))
        yield


async def _indexes(connection: Connection, place: QueriedContext) -> list[dict[str, Any]]:
    """Return each index's size on disk and its effect on the rate at which rows are stored."""
    found: list[dict[str, Any]] = []
    for index in sorted({each.index for each in QUERIES.values() if each.index}):
        cursor = await connection.execute(
            "SELECT sum(pg_relation_size(inhrelid)) FROM pg_inherits"
            " WHERE inhparent = %s::regclass",
            [index],
        )
        size = (await cursor.fetchone() or (0,))[0]
        # Measure both again: rolled back rows stay as dead rows and lower later rates.
        everything = await _rate(connection, place, None)
        rate = await _rate(connection, place, index)
        found.append(
            {
                "index": index,
                "rows_per_s": everything,
                "rows_per_s_without": rate,
                "faster_without": round(rate / everything - 1, 3),
                "bytes_per_row": round(float(size) / place.rows, 1),
            }
        )
        echo(f"{found[-1]}")
    return found


async def _rate(connection: Connection, place: QueriedContext, index: str | None) -> int:
    """Return the rows/s that the sink's statement stores within the last day."""
    late = place._replace(begin_ms=round(place.begin_ms - INGESTED * place.step_ms))
    blocks = [
        b"".join(_lines(late, at, at + BATCH))
        for at in range(place.rows, place.rows + INGESTED, BATCH)
    ]
    async with connection.transaction(force_rollback=True):
        if index is not None:
            await connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))
        begun = time.perf_counter()
        for block in blocks:
            await _store(connection, block)
        return round(INGESTED / (time.perf_counter() - begun))
