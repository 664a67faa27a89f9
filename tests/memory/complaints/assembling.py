"""The memory worker's steps, with an embedder of the test's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

from agents.memory.assembling import StepTarget, assemble_next
from agents.memory.embedding import GuardedEmbedder
from memory.embedding.interface import Embedder
from memory.store.vectors import can_store_vectors, use_model
from sinks.connections import connect_postgres


@asynccontextmanager
async def worker(dsn: str, embedder: Embedder) -> Any:
    guarded = GuardedEmbedder(embedder, retry_s=0)
    async with await connect_postgres(dsn) as connection:
        await can_store_vectors(connection)
        model = await use_model(connection, embedder)
        yield StepTarget(connection, guarded, model.id)


async def drain(dsn: str, embedder: Embedder) -> None:
    async with worker(dsn, embedder) as target:
        while (await assemble_next(target, 500, 0)).rows:
            pass
