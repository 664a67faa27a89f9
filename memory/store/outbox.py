"""Takes runs from the outbox, and reads their events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from memory.episodes.run_event import MAX_BYTES, MAX_EVENTS, RunEvent
from sinks.postgres.statements import load_statements

SQL = load_statements("memory", Path(__file__).parent / "sql")
DAY_MS: Final = 86_400_000
FIRST_MS: Final = 0
LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999."""
_AT_ONCE: Final = 1_000
"""Rows that are fetched together."""


class TouchedRun(NamedTuple):
    """A run, and the time in which to look for its events: [first, last), Unix ms."""

    tenant: str
    workflow_id: str
    first: int
    last: int


class OutboxLag(NamedTuple):
    """Rows that wait, and seconds for which the oldest has."""

    rows: int
    oldest_s: float


async def take_runs(
    connection: AsyncConnection[Any], limit: int, debounce_s: float
) -> tuple[list[TouchedRun], int]:
    """Take up to `limit` rows out of the outbox; return their runs, each once, and their number.

    Within a transaction: they are back if it is rolled back. Rows younger than `debounce_s` stay.
    """
    given = {"limit": limit, "debounce_s": debounce_s}
    rows = await (await connection.execute(SQL["take"], given)).fetchall()
    return list(_widened(TouchedRun(*row) for row in rows)), len(rows)


def _widened(rows: Iterable[TouchedRun]) -> Iterator[TouchedRun]:
    """Yield each run once, with a day on both sides: other rows of it may be taken elsewhere."""
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for tenant, workflow_id, first, last in rows:
        known = spans.get((tenant, workflow_id), (first, last))
        spans[tenant, workflow_id] = min(first, known[0]), max(last, known[1])
    for (tenant, workflow_id), (first, last) in sorted(spans.items()):
        yield TouchedRun(
            tenant, workflow_id, max(FIRST_MS, first - DAY_MS), min(LAST_MS, last + DAY_MS)
        )


def widen(run: TouchedRun, started: int, ended: int) -> TouchedRun:
    """Return a run with the time of its known episode in it: no event of that may be missed."""
    return run._replace(first=min(run.first, started), last=max(run.last, ended + 1))


async def run_events(
    connection: AsyncConnection[Any], runs: Sequence[TouchedRun]
) -> AsyncIterator[tuple[TouchedRun, str, list[RunEvent]]]:
    """Yield (run, workflow type, events in order), for each workflow type of each run.

    Events beyond the bounds of `memory.episodes.run_event` come without their content.
    """
    wanted = {
        "numbers": list(range(len(runs))),
        "tenants": [run.tenant for run in runs],
        "workflow_ids": [run.workflow_id for run in runs],
        "firsts": [run.first for run in runs],
        "lasts": [run.last for run in runs],
        "first": min(run.first for run in runs),
        "last": max(run.last for run in runs),
    }
    key: tuple[int, str] | None = None
    events: list[RunEvent] = []
    size = 0
    async with connection.cursor() as cursor:
        async for row in cursor.stream(SQL["events"], wanted, size=_AT_ONCE):
            number, workflow_type, *rest, data = row
            if (number, workflow_type) != key:
                if key is not None:
                    yield runs[key[0]], key[1], events
                key, events, size = (number, workflow_type), [], 0
            size += len(data)
            whole = len(events) < MAX_EVENTS and size <= MAX_BYTES
            events.append(RunEvent._make((*rest, data.encode() if whole else b"{}")))
    if key is not None:
        yield runs[key[0]], key[1], events


async def outbox_lag(connection: AsyncConnection[Any]) -> OutboxLag:
    """Return what waits in the outbox."""
    row = await (await connection.execute(SQL["lag"])).fetchone()
    return OutboxLag(*row) if row else OutboxLag(0, 0.0)


async def fill_outbox(
    connection: AsyncConnection[Any], tenant: str | None = None, since: int = 0
) -> int:
    """Add every run with stored events since a time (Unix ms); return how many."""
    cursor = await connection.execute(SQL["fill_outbox"], {"tenant": tenant, "since": since})
    return cursor.rowcount
