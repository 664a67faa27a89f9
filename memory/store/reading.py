"""Reads episodes back, one or many, and counts them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from memory.episodes.calls import unpack_calls
from memory.episodes.hashes import id_of_text
from memory.episodes.record import Episode
from memory.store.outbox import SQL, outbox_lag
from memory.store.sealed_texts import open_texts
from memory.store.vectors import SQL as VECTORS
from memory.store.vectors import count_missing
from sinks.postgres.encryption.tenant_keys import TenantKeys, keys_to_read
from sinks.postgres.reading import tenant_scope

AT_ONCE: Final = 500
RELATED_SHARE: Final = 0.2
"""Concepts are related if more than this share of a tenant's runs with a concept have both."""
_LISTS: Final = ("concepts", "domains", "agents_used", "insights", "reference_ids")
_RANKED: Final = ("concepts", "domains", "tools", "agents")


def episode_of(row: Mapping[str, Any], keys: TenantKeys) -> Episode:
    """Return the episode of a row; of a merged one with the texts of the row `content_id`.

    Raises `ValueError` for damaged calls or texts.
    """
    lists = {name: tuple(row[name]) for name in _LISTS}
    whole = {**row, **lists}
    sealed, content_id = whole.pop("sealed"), whole.pop("content_id")
    if sealed:
        whole |= open_texts(keys, row["tenant"], content_id, sealed)._asdict()
    if content_id != row["id"]:
        whole["response"] = None  # merged runs need not have answered the same
    return Episode(**{**whole, "calls": unpack_calls(whole["calls"])})


async def episodes_of(
    connection: AsyncConnection[Any], rows: Sequence[Mapping[str, Any]]
) -> list[Episode]:
    """Return the episodes of rows. Raises `EncryptionKeyMissing`, and `ValueError` for damage."""
    keys = await keys_to_read(connection, {row["tenant"] for row in rows if row["sealed"]})
    return [episode_of(row, keys) for row in rows]


async def find_episodes(connection: AsyncConnection[Any], tenant: str, name: str) -> list[Episode]:
    """Return the episodes of a tenant whose id, or workflow id, is `name`.

    An id is decimal, or as events have it (`memory.episodes.hashes.id_text`). Raises
    `EncryptionKeyMissing`.
    """
    wanted = {"tenant": tenant, "workflow_id": name, "id": id_of_text(name)}
    async with (
        tenant_scope(connection, tenant),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        await cursor.execute(SQL["find"], wanted)
        return await episodes_of(connection, await cursor.fetchall())


async def states_of(
    connection: AsyncConnection[Any], tenant: str, ids: Sequence[int]
) -> dict[int, str]:
    """Return the state of a tenant's episodes by id: `live`, `quarantined`, `merged`, `pruned`."""
    async with tenant_scope(connection, tenant):
        found = await connection.execute(SQL["states"], {"tenant": tenant, "ids": list(ids)})
        return dict(await found.fetchall())


async def all_episodes(
    connection: AsyncConnection[Any],
    tenant: str | None = None,
    since: int = 0,
    *,
    quarantined: bool = True,
) -> AsyncIterator[list[Episode]]:
    """Yield episodes that ended since a time (Unix ms), in the order of their keys, in lists.

    Raises `EncryptionKeyMissing`.
    """
    wanted: dict[str, Any] = {"tenant": tenant, "since": since, "limit": AT_ONCE}
    wanted["quarantined"] = quarantined
    wanted |= dict.fromkeys(("after_tenant", "after_id", "after_type"), "")
    while True:
        async with (
            tenant_scope(connection, tenant),
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            await cursor.execute(SQL["episodes"], wanted)
            found = await episodes_of(connection, await cursor.fetchall())
        if not found:
            return
        yield found
        last = found[-1]
        wanted["after_tenant"] = last.tenant
        wanted["after_id"], wanted["after_type"] = last.workflow_id, last.workflow_type


async def memory_stats(
    connection: AsyncConnection[Any], tenant: str | None = None, limit: int = 10
) -> dict[str, Any]:
    """Return the statistics of a tenant's memory, or of all (source 003), and of the store."""
    async with tenant_scope(connection, tenant):
        found = await _tenant_stats(connection, tenant, limit)
    return found | await _store_stats(connection)


async def _tenant_stats(
    connection: AsyncConnection[Any], tenant: str | None, limit: int
) -> dict[str, Any]:
    of = {"tenant": tenant, "limit": limit}
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(SQL["totals"], of)
        totals = dict(await cursor.fetchone() or {})
    outcomes = dict(await (await connection.execute(SQL["outcomes"], of)).fetchall())
    found: dict[str, Any] = {
        "total_episodes": totals.pop("episodes"),
        "success_rate": totals["successes"] / totals["finished"] if totals["finished"] else None,
        **{name: _plain(value) for name, value in totals.items()},
        "outcomes": outcomes,
    }
    for kind in _RANKED:
        rows = await (await connection.execute(SQL[kind], of)).fetchall()
        found[f"total_{kind}"] = rows[0][2] if rows else 0
        found[f"most_common_{kind}"] = {name: count for name, count, _ in rows}
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(SQL["related_concepts"], {**of, "share": RELATED_SHARE})
        found["related_concepts"] = await cursor.fetchall()
    return found


async def _store_stats(connection: AsyncConnection[Any]) -> dict[str, Any]:
    """Return what concerns all tenants: models, missing vectors, lag, bytes."""
    lag = await outbox_lag(connection)
    size = await (await connection.execute(SQL["size"])).fetchone()
    has = await (await connection.execute(VECTORS["has_vectors"])).fetchone()
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(VECTORS["models"])
        models = await cursor.fetchall()
    for model in models:
        row = await (await connection.execute(VECTORS["model"], model)).fetchone()
        if row and has and has[0]:
            model["missing"], model["of"] = await count_missing(connection, row[0])
    return {
        "vectors": bool(has and has[0]),
        "models": models,
        "outbox_rows": lag.rows,
        "outbox_oldest_s": round(lag.oldest_s, 3),
        "bytes": int(size[0]) if size else 0,
    }


def _plain(value: Any) -> Any:
    return float(value) if value is not None and not isinstance(value, int) else value
