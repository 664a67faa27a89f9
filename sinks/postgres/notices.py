"""Notices in Postgres: stored with the detectors' states, marked when sent, listed.

`processing.notices` detects them. Functions that write are called in the transaction of the
threshold history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from sinks.postgres.reading import tenant_scope
from sinks.postgres.statements import load_statements
from topics.notices.messages import Notice

_SQL = load_statements("notices")

Key = tuple[str, str]
"""Tenant and path of a context."""


class StoredContext(NamedTuple):
    """Stored version and outcomes of a context's newest value, and its detectors' state.

    `epoch` is None if no value is stored.
    """

    epoch: int | None
    offset: int | None
    outcomes: int | None
    state: bytes | None


class NoticeRetention(NamedTuple):
    """A detector state to store, and the version of the value that it follows from."""

    epoch: int
    offset: int
    state: bytes


async def lock_offsets(
    connection: AsyncConnection[Any],
    consumer: str,
    topic: str,
    epoch: int,
    partitions: Iterable[int],
) -> dict[int, int]:
    """Lock the offsets of partitions; return the first one not yet stored of each.

    Call it first in the transaction.
    """
    of = {"consumer": consumer, "topic": topic, "epoch": epoch, "partitions": list(partitions)}
    return dict(await (await connection.execute(_SQL["claim"], of)).fetchall())


async def newest_values(
    connection: AsyncConnection[Any], keys: Collection[Key]
) -> dict[Key, StoredContext]:
    """Return the stored values and states of contexts."""
    asked = {"tenants": [key[0] for key in keys], "paths": [key[1] for key in keys]}
    rows = await (await connection.execute(_SQL["known"], asked)).fetchall()
    return {(tenant, path): StoredContext(*rest) for tenant, path, *rest in rows}


async def keep_states(
    connection: AsyncConnection[Any], changed: Mapping[Key, NoticeRetention | None]
) -> None:
    """Store detectors' states; None deletes that of a deleted context."""
    gone = [key for key, kept in changed.items() if kept is None]
    if gone:
        which = {"tenants": [key[0] for key in gone], "paths": [key[1] for key in gone]}
        await connection.execute(_SQL["forget"], which)
    kept = [(key, each) for key, each in changed.items() if each is not None]
    if kept:
        columns = {
            "tenants": [key[0] for key, _ in kept],
            "paths": [key[1] for key, _ in kept],
            "epochs": [each.epoch for _, each in kept],
            "offsets": [each.offset for _, each in kept],
            "states": [each.state for _, each in kept],
        }
        await connection.execute(_SQL["keep"], columns)


async def add_notices(connection: AsyncConnection[Any], found: Sequence[tuple[int, Notice]]) -> int:
    """Store (partition, notice) pairs; return how many are new."""
    if not found:
        return 0
    notices = [notice for _partition, notice in found]
    columns = {
        "ids": [each.id for each in notices],
        "kinds": [each.kind for each in notices],
        "tenants": [each.tenant for each in notices],
        "workflow_types": [each.workflow_type for each in notices],
        "paths": [each.path for each in notices],
        "ats": [each.at for each in notices],
        "evidences": [orjson.dumps(each.evidence).decode() for each in notices],
        "partitions": [partition for partition, _notice in found],
    }
    return (await connection.execute(_SQL["add"], columns)).rowcount


async def unsent_notices(
    connection: AsyncConnection[Any], partitions: Iterable[int], limit: int
) -> list[tuple[int, Notice]]:
    """Return the oldest `limit` unsent notices as (partition, notice) pairs."""
    which = {"partitions": list(partitions), "limit": limit}
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_SQL["unsent"], which)
        rows = await cursor.fetchall()
    return [(row.pop("partition"), Notice(**row)) for row in rows]


async def mark_sent(connection: AsyncConnection[Any], ids: Iterable[str]) -> None:
    """Mark notices as sent."""
    await connection.execute(_SQL["mark_sent"], {"ids": list(ids)})


async def delete_sent(connection: AsyncConnection[Any], days: float) -> int:
    """Delete sent notices detected more than `days` ago, oldest first; return how many.

    Deletes some thousands per call, to keep locks short. Unsent notices are kept.
    """
    return (await connection.execute(_SQL["forget_sent"], {"days": days})).rowcount


async def newest_notices(
    connection: AsyncConnection[Any],
    limit: int,
    *,
    since: int = 0,
    tenant: str | None = None,
    kinds: Collection[str] = (),
) -> list[tuple[int, Notice]]:
    """Return the newest `limit` notices, newest first, as (detection time in Unix ms, notice).

    `since`: earliest detection time, Unix ms; `kinds`: empty for all.
    """
    which = {"limit": limit, "since": since, "tenant": tenant, "kinds": list(kinds)}
    async with (
        tenant_scope(connection, tenant),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        await cursor.execute(_SQL["newest"], which)
        rows = await cursor.fetchall()
    return [(row.pop("found"), Notice(**row)) for row in rows]
