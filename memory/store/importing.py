"""Stores episodes that were not assembled from stored events: imported ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from memory.embedding.interface import Embedder, EmbeddingUnavailable
from memory.episodes.record import Episode
from memory.store.conflicts import repeated
from memory.store.episodes import Stored, known_times, store_episodes
from memory.store.outbox import TouchedRun
from memory.store.purges import lock_and_read
from memory.store.vectors import (
    can_store_vectors,
    keep_current,
    put_present,
    texts_of,
    use_model,
    without_vector,
)
from topics.control.purges import EventSubject


async def import_episodes(connection: AsyncConnection[Any], episodes: Sequence[Episode]) -> Stored:
    """Store episodes in one transaction; those of erased users, and stale ones, are left out.

    Of several with one key the last counts. They have no vectors yet. Raises psycopg's errors.
    """
    newest = {each.key: each for each in episodes}
    stored = await repeated(lambda: _import(connection, list(newest.values())))
    return Stored(stored.written, len(episodes) - len(stored.written))


async def _import(connection: AsyncConnection[Any], episodes: Sequence[Episode]) -> Stored:
    async with connection.transaction():
        purges = await lock_and_read(connection, [each.tenant for each in episodes])
        wanted = [
            each
            for each in episodes
            if not purges.covers(
                EventSubject(
                    each.tenant, each.workflow_id, each.ended, each.user_id, each.session_id
                ),
                0,
            )
        ]
        runs = [TouchedRun(each.tenant, each.workflow_id, 0, 0) for each in wanted]
        known = await known_times(connection, runs)
        stored = await store_episodes(connection, wanted, known)
        if await can_store_vectors(connection):
            await keep_current(connection, [each for each in stored.written if each.key in known])
    return stored


async def embed_imported(
    connection: AsyncConnection[Any], episodes: Sequence[Episode], embedder: Embedder
) -> int:
    """Store vectors of imported episodes; return how many have none: the worker fills them in.

    Those that were erased meanwhile get none, and are not counted.
    """
    if not await can_store_vectors(connection):
        return 0
    texts = texts_of(episodes)
    try:
        model = await use_model(connection, embedder)
        texts = await without_vector(connection, texts, model.id)
        vectors = await asyncio.to_thread(embedder.embed, [each.text for each in texts])
    except EmbeddingUnavailable:
        return len(texts)

    async def store() -> None:
        async with connection.transaction():
            await put_present(connection, texts, vectors, model.id)

    await repeated(store)
    return 0
