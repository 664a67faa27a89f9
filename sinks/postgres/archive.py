"""Reads episodes back as events, ordered by time, in bounded memory."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from sinks.postgres.encryption.reading import TextReader
from sinks.postgres.packing.reading import TraceReader
from sinks.postgres.queries import event_of
from sinks.postgres.reading import tenant_scope
from sinks.postgres.statements import load_statements

_SQL = load_statements("archive")
_AT_ONCE: Final = 2_000
_Place = tuple[int, bool, str, str]
"""What events are ordered by: see `_place`."""
LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999, in Unix ms: no event is later."""


def span(
    since: int | None, until: int | None, tenant: str | None, workflow_type: str | None
) -> dict[str, Any]:
    """Return query parameters: `since` and `until` in Unix ms, `until` exclusive; None: any."""
    return {
        "since": since or 0,
        "until": LAST_MS if until is None else min(until, LAST_MS),
        "tenant": tenant,
        "workflow_type": workflow_type,
    }


async def archived_count(connection: AsyncConnection[Any], wanted: Mapping[str, Any]) -> int:
    """Return how many events in a `span` are stored. Raises `TraceDamaged`."""
    async with tenant_scope(connection, wanted["tenant"]):
        row = await (await connection.execute(_SQL["count_archived"], wanted)).fetchone()
        found, reader = int(row[0]) if row else 0, TraceReader(connection)
        async with connection.cursor() as cursor:
            await cursor.execute(_SQL["partly_archived"], wanted)
            for run in await cursor.fetchall():
                times = [event.timestamp for event in await reader.events(*run)]
                found += sum(wanted["since"] <= at < wanted["until"] for at in times)
    return found


async def archived_events(
    connection: AsyncConnection[Any], wanted: Mapping[str, Any]
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the events in a `span` in lists, as emitted except for `origin`.

    Of packed runs those are held in memory that the range has reached. Raises `TraceDamaged` and
    `EncryptionKeyMissing`.
    """
    merged, texts = _MergedRuns(TraceReader(connection), wanted), TextReader(connection)
    async with (
        tenant_scope(connection, wanted["tenant"]),
        connection.transaction(),
        connection.cursor("headstart_archive", row_factory=dict_row) as cursor,
    ):
        cursor.itersize = _AT_ONCE
        await cursor.execute(_SQL["archived"], wanted)
        while rows := await cursor.fetchmany(_AT_ONCE):
            found = [row for each in rows for row in await merged.add(each)]
            if found:
                yield [event_of(row) for row in await texts.rows(found)]
        while found := list(merged.rest(_AT_ONCE)):
            yield [event_of(row) for row in await texts.rows(found)]


class _MergedRuns:
    """Puts the events of packed runs between the rows of events, which come in their order."""

    def __init__(self, reader: TraceReader, wanted: Mapping[str, Any]) -> None:
        self._reader, self._wanted = reader, wanted
        self._waiting: list[tuple[_Place, int, dict[str, Any]]] = []
        self._number = count()

    async def add(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the rows that come next: events of earlier runs up to this row, and itself."""
        del row["place"], row["late"]
        is_run = row["trace"] is not None
        rows = await self._reader.rows(row)
        if not is_run:
            return [*self._before(_place(row)), row]
        for each in rows:
            if self._wanted["since"] <= each["timestamp"] < self._wanted["until"]:
                heapq.heappush(self._waiting, (_place(each), next(self._number), each))
        return []

    def _before(self, place: _Place) -> Iterator[dict[str, Any]]:
        while self._waiting and self._waiting[0][0] < place:
            yield heapq.heappop(self._waiting)[2]

    def rest(self, limit: int) -> Iterator[dict[str, Any]]:
        """Yield up to `limit` events that follow the last row."""
        for _ in range(min(limit, len(self._waiting))):
            yield heapq.heappop(self._waiting)[2]


def _place(row: Mapping[str, Any]) -> _Place:
    """Return the order of events: that of the statement; the tenant makes it unique."""
    is_late = row["event_type"] != "speculation_start"
    return row["timestamp"], is_late, row["id"], row["tenant"]
