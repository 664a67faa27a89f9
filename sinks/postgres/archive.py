"""Reads episodes back as events, ordered by time, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from sinks.postgres.queries import event_of
from sinks.postgres.reading import tenant_scope
from sinks.postgres.statements import load_statements

_SQL = load_statements("archive")
_AT_ONCE: Final = 2_000
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
    """Return how many events in a `span` are stored."""
    async with tenant_scope(connection, wanted["tenant"]):
        row = await (await connection.execute(_SQL["extent"], wanted)).fetchone()
    return int(row[0]) if row else 0


async def archived_events(
    connection: AsyncConnection[Any], wanted: Mapping[str, Any]
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the events in a `span` in lists, as emitted except for `origin`."""
    async with (
        tenant_scope(connection, wanted["tenant"]),
        connection.transaction(),
        connection.cursor("headstart_archive", row_factory=dict_row) as cursor,
    ):
        cursor.itersize = _AT_ONCE
        await cursor.execute(_SQL["archived"], wanted)
        while rows := await cursor.fetchmany(_AT_ONCE):
            yield [event_of(row) for row in rows]
