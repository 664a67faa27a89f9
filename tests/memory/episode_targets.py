"""Where a step of the memory worker stores, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.memory.assembling import StepTarget
from agents.memory.embedding import GuardedEmbedder
from memory.store.vectors import can_store_vectors, use_model
from sinks.connections import connect_postgres
from tests.memory.stored_runs import WordEmbedder


@asynccontextmanager
async def target_at(dsn: str, embedder: Any = None) -> AsyncIterator[StepTarget]:
    """Yield the target of steps on a migrated database, with an embedder for words."""
    guarded = GuardedEmbedder(embedder or WordEmbedder(), retry_s=0)
    async with await connect_postgres(dsn) as connection:
        await can_store_vectors(connection)
        model = await use_model(connection, guarded.embedder)
        yield StepTarget(connection, guarded, model.id)
