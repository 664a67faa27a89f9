"""Queries on events and threshold history.

Every function takes an open connection (`sinks.connections.connect_postgres`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from sinks.postgres.encryption.reading import TextReader
from sinks.postgres.packing.reading import TraceReader
from sinks.postgres.reading import tenant_scope
from sinks.postgres.statements import load_statements

_SQL = load_statements("queries")


class EventCount(NamedTuple):
    """Number of stored events of a tenant, and of distinct ones."""

    stored: int
    distinct: int


async def events_of_workflow(
    connection: AsyncConnection[Any], tenant: str, workflow_id: str, limit: int = 100
) -> list[dict[str, Any]]:
    """Return the newest `limit` events of one workflow, newest first, as they were emitted.

    Timestamps are Unix ms, unknown fields are at the top level again, absent fields are omitted,
    and `confidence` has the precision of a 32-bit float. Raises `TraceDamaged` for packed events
    that cannot be read, and `EncryptionKeyMissing`.
    """
    which = {"tenant": tenant, "workflow_id": workflow_id, "limit": limit}
    async with (
        tenant_scope(connection, tenant),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        await cursor.execute(_SQL["events_of_workflow"], which)
        reader, rows = TraceReader(connection), list[dict[str, Any]]()
        for row in await cursor.fetchall():
            rows += await reader.rows(row)
        rows = await TextReader(connection).rows(rows)
    rows.sort(key=lambda row: (row["timestamp"], row["id"]), reverse=True)
    return [event_of(row) for row in rows[:limit]]


def event_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the emitted event of a row; removes `extra` from `row`."""
    extra = row.pop("extra") or {}
    return {key: value for key, value in row.items() if value is not None} | extra


async def count_events(connection: AsyncConnection[Any], tenant: str) -> EventCount:
    """Count a tenant's events; the two numbers differ if one is stored twice."""
    row = await (await connection.execute(_SQL["count_events"], {"tenant": tenant})).fetchone()
    return EventCount(*row) if row else EventCount(0, 0)


async def estimate_events(connection: AsyncConnection[Any]) -> int:
    """Return the approximate number of events of all tenants, about a second old."""
    row = await (await connection.execute(_SQL["estimate_events"])).fetchone()
    return int(row[0]) if row else 0


async def event_ids(connection: AsyncConnection[Any], tenant: str) -> set[str]:
    """Return the ids of a tenant's stored events, in lower case with hyphens."""
    cursor = await connection.execute(_SQL["event_ids"], {"tenant": tenant})
    return {row[0] for row in await cursor.fetchall()}


class EventPlace(NamedTuple):
    """What finds an event; `timestamp` is Unix ms."""

    id: str
    tenant: str
    timestamp: int
    workflow_id: str


async def events_not_stored(
    connection: AsyncConnection[Any], events: Iterable[EventPlace]
) -> list[str]:
    """Return the ids of events that have no row, are not packed, and were not deleted by age."""
    ids, tenants, timestamps, workflow_ids = zip(*events, strict=True)
    # One string each: psycopg writes arrays element by element. No tenant has control characters;
    # a workflow id may, and one with a NUL, which Postgres refuses, is stored nowhere.
    names = [name.replace("\0", "") for name in workflow_ids]
    which = {
        "ids": ",".join(ids),
        "tenants": "\x1f".join(tenants),
        "timestamps": ",".join(map(str, timestamps)),
        "workflow_ids": orjson.dumps(names).decode(),
    }
    return [
        row[0] for row in await (await connection.execute(_SQL["not_stored"], which)).fetchall()
    ]


async def history_of_context(
    connection: AsyncConnection[Any], tenant: str, path: str, limit: int = 100, since: int = 0
) -> list[dict[str, Any]]:
    """Return the newest `limit` thresholds of one context, newest version first.

    Each has the fields of `topics.schema.json_schema.PublishedThreshold`; `at` and `since` are Unix
    ms.
    """
    which = {"tenant": tenant, "path": path, "limit": limit, "since": since}
    async with (
        tenant_scope(connection, tenant),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        await cursor.execute(_SQL["history_of_context"], which)
        return await cursor.fetchall()
