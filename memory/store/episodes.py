"""Stores episodes; one of fewer events never replaces one of more."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from psycopg import AsyncConnection

from memory.episodes.calls import pack_calls
from memory.episodes.record import Episode
from memory.store.merging import release_merged
from memory.store.outbox import SQL, TouchedRun, run_names
from memory.store.sealed_texts import EpisodeTexts, seal_texts
from sinks.postgres.encryption.sealing import DataKey
from sinks.postgres.encryption.tenant_keys import keys_to_write

Key = tuple[str, str, str]
"""Tenant, workflow id and workflow type."""
_REALS: Final = ("reward", "confidence", "duration_ms", "cost_ms")
_LEAST: Final = 1.1754944e-38
"""The smallest normal number of Postgres' type real."""


class Superseded(Exception):
    """Another worker has stored one of the episodes meanwhile: roll back, and begin again."""


class Stored(NamedTuple):
    """Of some episodes, those that were written, and how many stay: equal, or of more events."""

    written: list[Episode]
    stale: int


async def known_times(
    connection: AsyncConnection[Any], runs: Sequence[TouchedRun]
) -> dict[Key, tuple[int, int]]:
    """Lock the episodes of these runs; return when they began and ended, Unix ms."""
    rows = await (await connection.execute(SQL["known"], run_names(runs))).fetchall()
    return {(tenant, wid, kind): (started, ended) for tenant, wid, kind, started, ended in rows}


async def store_episodes(
    connection: AsyncConnection[Any], episodes: Sequence[Episode], known: Iterable[Key]
) -> Stored:
    """Insert or update episodes. `known`: the keys of those that exist, which are locked.

    Raises `Superseded` if one exists that is not known: it may have been made of other events; and
    `EncryptionKeyMissing`.
    """
    if not episodes:
        return Stored([], 0)
    ordered = sorted(episodes, key=lambda episode: episode.key)
    keys = await keys_to_write(connection, {episode.tenant for episode in ordered})
    rows_given = [_row(episode, keys.newest(episode.tenant)) for episode in ordered]
    given = {"episodes": orjson.dumps(rows_given).decode()}
    rows = await (await connection.execute(SQL["upsert"], given)).fetchall()
    inserted = {(tenant, own): new for tenant, own, new in rows}
    there = set(known)
    written = []
    for episode in ordered:
        new = inserted.get((episode.tenant, episode.id))
        if new is not True and episode.key not in there:
            raise Superseded
        if new is not None:
            written.append(episode)
    await release_merged(connection, written)
    return Stored(written, len(ordered) - len(written))


def _row(episode: Episode, key: DataKey | None) -> Mapping[str, Any]:
    row = episode._asdict()
    row |= {name: _as_real(row[name]) for name in _REALS}
    row["tools"] = episode.tools
    packed = pack_calls(episode.calls)
    if key is None:
        return row | {"calls": _base64(packed), "sealed": None}
    texts = EpisodeTexts(
        episode.query, episode.response, packed, episode.query_hash, episode.first_call
    )
    hashes = {name: row[name] for name in ("query_hash", "first_call") if row[name] is not None}
    return {
        **row,
        **dict.fromkeys(("query", "response", "calls")),
        **{name: key.keyed_hash(plain) for name, plain in hashes.items()},
        "sealed": _base64(seal_texts(key, episode.id, texts)) if any(texts) else None,
    }


def _as_real(value: float | None) -> float | None:
    """Return 0 for what is too small for the type real, which Postgres refuses."""
    return 0.0 if value is not None and abs(value) < _LEAST else value


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
