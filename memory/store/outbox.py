"""Takes runs from the outbox, and reads their events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from memory.episodes.run_event import MAX_BYTES, MAX_EVENTS, RunEvent, in_order
from sinks.postgres.encryption.event_texts import is_sealed
from sinks.postgres.encryption.reading import TextReader
from sinks.postgres.packing.reading import PackedRun, TraceReader, traces_of_runs
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


class RunKey(NamedTuple):
    """What names a run in the outbox."""

    tenant: str
    workflow_id: str


class OutboxLag(NamedTuple):
    """Rows that wait, and seconds for which the oldest has."""

    rows: int
    oldest_s: float


async def take_runs(
    connection: AsyncConnection[Any],
    limit: int,
    debounce_s: float,
    postponed: Collection[RunKey] = (),
) -> tuple[list[TouchedRun], int]:
    """Take up to `limit` rows out of the outbox; return their runs, each once, and their number.

    Within a transaction: they are back if it is rolled back. Rows younger than `debounce_s` stay,
    and those of the runs `postponed`.
    """
    given = {"limit": limit, "debounce_s": debounce_s, **run_names(postponed)}
    rows = await (await connection.execute(SQL["take"], given)).fetchall()
    return list(_widened(TouchedRun(*row) for row in rows)), len(rows)


async def drop_runs(connection: AsyncConnection[Any], runs: Collection[TouchedRun]) -> None:
    """Delete the rows of runs that no other transaction has: no episode is made of them."""
    await connection.execute(SQL["drop"], run_names(runs))


def run_names(runs: Collection[RunKey | TouchedRun]) -> dict[str, list[str]]:
    """Return the names of runs as parameters of a statement: two lists of one length."""
    return {
        "tenants": [run.tenant for run in runs],
        "workflow_ids": [run.workflow_id for run in runs],
    }


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

    Packed events are among them. Those beyond the bounds of `memory.episodes.run_event` come
    without their content. Raises `TraceDamaged` and `EncryptionKeyMissing`.
    """
    texts = TextReader(connection)
    for tenant in sorted({run.tenant for run in runs}):
        await texts.keys(tenant)  # the connection is busy while rows are read
    async for run, workflow_type, events in _sealed_events(connection, runs):
        yield run, workflow_type, [await _opened(texts, run.tenant, each) for each in events]


async def _opened(texts: TextReader, tenant: str, event: RunEvent) -> RunEvent:
    data = event.data
    if not isinstance(data, bytes) or not is_sealed(data):
        return event
    return event._replace(data=await texts.data(tenant, event.id, data))


async def _sealed_events(
    connection: AsyncConnection[Any], runs: Sequence[TouchedRun]
) -> AsyncIterator[tuple[TouchedRun, str, list[RunEvent]]]:
    packed = await _PackedEvents.of(connection, runs)
    async for run, workflow_type, events in _stored_rows(connection, runs):
        yield run, workflow_type, await packed.merged(run, workflow_type, events)
    async for whole in packed.rest():
        yield whole


async def _stored_rows(
    connection: AsyncConnection[Any], runs: Sequence[TouchedRun]
) -> AsyncIterator[tuple[TouchedRun, str, list[RunEvent]]]:
    wanted = {
        "numbers": list(range(len(runs))),
        **run_names(runs),
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


class _PackedEvents:
    """The packed events of some runs, unpacked when they are wanted."""

    def __init__(self, reader: TraceReader, runs: dict[tuple[str, str, str], PackedRun]) -> None:
        self._reader, self._runs = reader, runs
        self._touched: dict[tuple[str, str], TouchedRun] = {}

    @classmethod
    async def of(
        cls, connection: AsyncConnection[Any], runs: Sequence[TouchedRun]
    ) -> _PackedEvents:
        found = await traces_of_runs(
            connection, [run.tenant for run in runs], [run.workflow_id for run in runs]
        )
        reader = TraceReader(connection)
        await reader.load(found)
        self = cls(
            reader,
            {(run.tenant, run.workflow_id, run.workflow_type): run for run in found},
        )
        self._touched = {run[:2]: run for run in runs}
        return self

    async def merged(
        self, run: TouchedRun, workflow_type: str, events: list[RunEvent]
    ) -> list[RunEvent]:
        """Return these events and the packed ones of their run, in order, each once."""
        packed = self._runs.pop((run.tenant, run.workflow_id, workflow_type), None)
        return in_order([*events, *await self._events(packed)]) if packed else events

    async def rest(self) -> AsyncIterator[tuple[TouchedRun, str, list[RunEvent]]]:
        """Yield the runs of which all events are packed."""
        for (tenant, workflow_id, workflow_type), packed in self._runs.items():
            yield self._touched[tenant, workflow_id], workflow_type, await self._events(packed)

    async def _events(self, packed: PackedRun) -> list[RunEvent]:
        return [
            RunEvent._make((*event[:10], event.data.encode()))
            for event in await self._reader.of_run(packed)
        ]


async def outbox_lag(
    connection: AsyncConnection[Any], postponed: Collection[RunKey] = ()
) -> OutboxLag:
    """Return what waits in the outbox, besides the runs `postponed`."""
    row = await (await connection.execute(SQL["lag"], run_names(postponed))).fetchone()
    return OutboxLag(*row) if row else OutboxLag(0, 0.0)


async def statement_age_s(connection: AsyncConnection[Any], pid: int) -> float:
    """Return for how many seconds the backend `pid` has executed its statement; 0: it has none.

    Time at a lock counts, time in which it waits for its client does not.
    """
    row = await (await connection.execute(SQL["statement_age"], {"pid": pid})).fetchone()
    return max(0.0, row[0]) if row and row[0] is not None else 0.0


async def fill_outbox(
    connection: AsyncConnection[Any], tenant: str | None = None, since: int = 0
) -> int:
    """Add every run with stored events since a time (Unix ms); return how many."""
    cursor = await connection.execute(SQL["fill_outbox"], {"tenant": tenant, "since": since})
    return cursor.rowcount
