"""Stores vectors, one of each model for each episode, and finds episodes that have none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from pgvector import HalfVector
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection

from memory.embedding.interface import Embedder, EmbeddingUnavailable, Vectors
from memory.episodes.hashes import text_hash
from memory.episodes.record import Episode
from memory.store.sealed_texts import open_texts
from sinks.postgres.encryption.tenant_keys import TenantKeys, keys_to_read
from sinks.postgres.statements import load_statements

SQL = load_statements("vectors", Path(__file__).parent / "sql")
DIMENSIONS: Final = 256
"""Of the column. A model of fewer is padded with zeros, which changes no cosine."""
NO_TEXT: Final = -1


class EmbeddingModel(NamedTuple):
    """The model that new vectors are of."""

    id: int
    state: Literal["filling", "active"]


class EmbeddedText(NamedTuple):
    """A text to be embedded, and what its vector is stored with."""

    tenant: str
    episode: int
    workflow_type: str
    outcome: str | None
    ended: int
    text: str


async def can_store_vectors(connection: AsyncConnection[Any]) -> bool:
    """Return whether the database has the table, and prepare the connection for it."""
    row = await (await connection.execute(SQL["has_vectors"])).fetchone()
    if not row or not row[0]:
        return False
    await register_vector_async(connection)
    return True


async def use_model(connection: AsyncConnection[Any], embedder: Embedder) -> EmbeddingModel:
    """Return the stored model of an embedder; a new one is added, the first one answers at once.

    Raises `EmbeddingUnavailable` if its vectors do not fit the column, or had another length.
    """
    name, dimensions = embedder.model, embedder.dimensions
    if dimensions > DIMENSIONS:
        raise EmbeddingUnavailable(
            f"{name} has {dimensions} dimensions, the table holds {DIMENSIONS}: let the endpoint "
            "reduce them, or let Headstart project them (HEADSTART_EMBEDDING_DIMENSIONS)"
        )
    async with connection.transaction():
        await connection.execute(SQL["add_model"], {"name": name, "dimensions": dimensions})
        row = await (await connection.execute(SQL["model"], {"name": name})).fetchone()
        assert row is not None
        own, before, _ = row
        if before != dimensions:
            raise EmbeddingUnavailable(
                f"vectors of {name} have had {before} dimensions so far, and {dimensions} now: "
                "give the changed model another name"
            )
        await connection.execute(SQL["activate_first"], {"id": own})
        await connection.execute(SQL["refill"], {"id": own})
        row = await (await connection.execute(SQL["model"], {"name": name})).fetchone()
        assert row is not None
    return EmbeddingModel(own, row[2])


async def activate(connection: AsyncConnection[Any], model: int) -> None:
    """Have queries use a model from now on; vectors of the one before stay."""
    async with connection.transaction():
        await connection.execute(SQL["retire"], {"id": model})
        await connection.execute(SQL["activate"], {"id": model})


def texts_of(episodes: Sequence[Episode]) -> list[EmbeddedText]:
    """Return the texts of episodes that have one."""
    return [
        EmbeddedText(e.tenant, e.id, e.workflow_type, e.outcome, e.ended, e.query)
        for e in episodes
        if e.query
    ]


async def keep_current(connection: AsyncConnection[Any], changed: Sequence[Episode]) -> None:
    """Adjust the vectors of episodes that existed before; those of another text are deleted."""
    if not changed:
        return
    of: dict[str, Any] = {
        "tenants": [each.tenant for each in changed],
        "episodes": [each.id for each in changed],
        "hashes": [text_hash(each.query) if each.query else NO_TEXT for each in changed],
        "outcomes": [each.outcome for each in changed],
        "endeds": [each.ended for each in changed],
    }
    await connection.execute(SQL["drop_stale"], of)
    await connection.execute(SQL["keep_current"], of)


async def without_vector(
    connection: AsyncConnection[Any], texts: Sequence[EmbeddedText], model: int
) -> list[EmbeddedText]:
    """Return those whose text has no vector of a model yet."""
    if not texts:
        return []
    wanted = {
        "tenants": [each.tenant for each in texts],
        "episodes": [each.episode for each in texts],
        "model": model,
    }
    rows = await (await connection.execute(SQL["hashes"], wanted)).fetchall()
    known = {(tenant, episode): found for tenant, episode, found in rows}
    return [
        each for each in texts if known.get((each.tenant, each.episode)) != text_hash(each.text)
    ]


async def put_present(
    connection: AsyncConnection[Any], texts: Sequence[EmbeddedText], vectors: Vectors, model: int
) -> None:
    """Store vectors as `put_vectors`, of those episodes that are still live and have a text.

    Within a transaction. For texts that were embedded outside of the one that read them: a purge,
    or the shredding of a key, may have come between.
    """
    of = {"tenants": [each.tenant for each in texts], "episodes": [each.episode for each in texts]}
    there = set(await (await connection.execute(SQL["present"], of)).fetchall())
    rows = [row for row, each in enumerate(texts) if (each.tenant, each.episode) in there]
    if rows:
        await put_vectors(connection, [texts[row] for row in rows], vectors[rows], model)


async def put_vectors(
    connection: AsyncConnection[Any], texts: Sequence[EmbeddedText], vectors: Vectors, model: int
) -> None:
    """Store a vector of each text, shape (texts, at most `DIMENSIONS`); 0 as none."""
    width = vectors.shape[1]
    padded = np.zeros((len(texts), DIMENSIONS), np.float16)
    padded[:, :width] = vectors
    empty = [not vector.any() for vector in padded]
    given: dict[str, Any] = {
        "model": model,
        "tenants": [each.tenant for each in texts],
        "episodes": [each.episode for each in texts],
        "workflow_types": [each.workflow_type for each in texts],
        "outcomes": [each.outcome for each in texts],
        "endeds": [each.ended for each in texts],
        "hashes": [text_hash(each.text) for each in texts],
        "vectors": [
            None if none else HalfVector(vector) for none, vector in zip(empty, padded, strict=True)
        ],
    }
    await connection.execute(SQL["put"], given)


async def missing_texts(
    connection: AsyncConnection[Any], model: int, after: tuple[str, int], limit: int
) -> list[EmbeddedText]:
    """Return the next episodes without a vector, in the order of (tenant, id), locked.

    Encrypted texts are opened; those whose key was shredded are empty. Raises
    `EncryptionKeyMissing`.
    """
    wanted = {"model": model, "tenant": after[0], "id": after[1], "limit": limit}
    rows = await (await connection.execute(SQL["missing"], wanted)).fetchall()
    keys = await keys_to_read(connection, {row[0] for row in rows if row[-1]})
    return [
        EmbeddedText(tenant, id, kind, outcome, ended, _query(keys, tenant, id, query, sealed))
        for tenant, id, kind, outcome, ended, query, sealed in rows
    ]


def _query(
    keys: TenantKeys, tenant: str, episode: int, query: str | None, sealed: bytes | None
) -> str:
    opened = open_texts(keys, tenant, episode, sealed).query if sealed else query
    return opened or ""


async def count_missing(connection: AsyncConnection[Any], model: int) -> tuple[int, int]:
    """Return how many episodes have no vector of a model, of how many that want one."""
    row = await (await connection.execute(SQL["count_missing"], {"model": model})).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)
