"""A change of the embedding model loses nothing, and vectors of two models never meet.

hindsight #2209, #2354: a new dimension broke deletion. zeph #3029, #3152: a mismatch wiped the
store. statewave #421: vectors of one dimension and two models were compared. mem0 #5245, #5509:
a failing embedder lost memories in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from agents.memory.filling import VectorFilling
from memory.embedding.interface import EmbeddingUnavailable, Vectors
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.service import RetrievalService
from memory.store.reading import all_episodes, find_episodes, memory_stats
from memory.store.vectors import use_model
from sinks.connections import connect_postgres
from tests.memory.complaints.assembling import drain, worker
from tests.memory.stored_runs import WordEmbedder, run, store

pytestmark = pytest.mark.integration

RUNS = 40


class WideEmbedder(WordEmbedder):
    """Another model, of more dimensions."""

    dimensions = 32


class DyingEmbedder(WordEmbedder):
    """Ends its process's work in the middle of a batch."""

    def embed(self, texts: Any) -> Vectors:
        raise EmbeddingUnavailable("killed")


async def fill(dsn: str, embedder: WordEmbedder) -> None:
    async with worker(dsn, embedder) as target:
        filling = VectorFilling(await use_model(target.connection, embedder))
        while await filling.step(target):
            pass


async def ask(dsn: str, embedder: WordEmbedder, **query: Any) -> Retrieval:
    async with RetrievalService(dsn, [embedder], timeout_s=60) as service:
        return await service.search(MemoryQuery(tenant="a", k=100, **query))


@pytest.fixture
def filled(migrated: str) -> str:
    async def steps() -> None:
        await store(migrated, *(run("a", str(n), f"query number {n}") for n in range(RUNS)))
        await drain(migrated, WordEmbedder())

    asyncio.run(steps())
    return migrated


def count(dsn: str, query: str) -> int:
    with psycopg.connect(dsn) as connection:
        (found,) = connection.execute(query.encode()).fetchone() or (0,)
    return int(found)


async def _search(dsn: str, embedder: WordEmbedder) -> None:
    for mode in ("lexical", "vector", "hybrid"):
        found = await ask(dsn, embedder, text="query number 3", mode=mode)
        assert len(found.episodes) >= RUNS, mode


async def _late_event(dsn: str, embedder: WordEmbedder) -> None:
    await store(dsn, run("a", "3", "another query", steps=6)[4:])
    await drain(dsn, embedder)


async def _new_run(dsn: str, embedder: WordEmbedder) -> None:
    await store(dsn, run("a", "new", "query number new"))
    await drain(dsn, embedder)
    found = await ask(dsn, embedder, text="query number new", mode="exact")
    assert len(found.episodes) == 1


async def _delete(dsn: str, _embedder: WordEmbedder) -> None:
    async with await connect_postgres(dsn) as connection:
        for table in ("episode_vectors", "episodes"):
            await connection.execute(f"DELETE FROM {table} WHERE tenant = 'a'".encode())
    assert count(dsn, "SELECT count(*) FROM episode_vectors") == 0


async def _read(dsn: str, _embedder: WordEmbedder) -> None:
    async with await connect_postgres(dsn) as connection:
        assert (await memory_stats(connection, "a"))["total_episodes"] >= RUNS
        assert len(await find_episodes(connection, "a", "1")) == 1
        assert sum([len(each) async for each in all_episodes(connection, "a")]) >= RUNS


OPERATIONS: dict[str, Callable[[str, WordEmbedder], Awaitable[None]]] = {
    "search": _search,
    "read": _read,
    "late event": _late_event,
    "new run": _new_run,
    "delete": _delete,
}


@pytest.mark.parametrize("moment", ["at once", "filled in"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_works_after_a_change_of_dimension(
    filled: str, operation: str, moment: str
) -> None:
    new = WideEmbedder("wide")

    async def steps() -> None:
        async with worker(filled, new):
            pass  # it is known from now on
        if moment == "filled in":
            await fill(filled, new)
        # Until the new one is filled in, the old one answers.
        await OPERATIONS[operation](filled, new if moment == "filled in" else WordEmbedder())

    asyncio.run(steps())


def test_a_change_of_model_deletes_nothing(filled: str) -> None:
    vectors = "SELECT count(*) FROM episode_vectors"
    asyncio.run(fill(filled, WideEmbedder("wide")))
    assert count(filled, vectors) == 2 * RUNS
    asyncio.run(fill(filled, WordEmbedder()))  # and back
    assert count(filled, vectors) == 2 * RUNS
    assert count(filled, "SELECT count(*) FROM episodes") == RUNS


def test_vectors_of_two_models_of_one_dimension_are_not_compared(filled: str) -> None:
    """The other model's vectors would be nearest: it sees every text as the opposite one."""

    class Mirrored(WordEmbedder):
        def embed(self, texts: Any) -> Vectors:
            found: Vectors = -super().embed(texts)
            return found

    asyncio.run(fill(filled, Mirrored("mirrored")))
    with psycopg.connect(filled) as connection:
        active = "SELECT name FROM memory_models WHERE state = 'active'"
        assert connection.execute(active.encode()).fetchone() == ("mirrored",)
    found = asyncio.run(ask(filled, Mirrored("mirrored"), text="query number 7", mode="vector"))
    assert len(found.episodes) == len({each.id for each in found.episodes}) == RUNS
    assert found.episodes[0].query == "query number 7"
    assert found.episodes[0].similarity == pytest.approx(1, abs=2e-3)
    # A service that has only the old model searches no vector, and says so.
    old = asyncio.run(ask(filled, WordEmbedder(), text="query number 7", mode="hybrid"))
    assert "the stored vectors are of the model mirrored" in old.degraded[0]
    assert old.episodes[0].similarity is None


def test_a_model_that_changes_its_dimension_under_its_name_is_refused(filled: str) -> None:
    async def changed() -> None:
        async with worker(filled, WideEmbedder("words")):
            pass

    with pytest.raises(EmbeddingUnavailable, match="dimensions"):
        asyncio.run(changed())


def test_a_killed_embedder_loses_nothing(migrated: str) -> None:
    async def stored() -> Retrieval:
        await store(migrated, *(run("a", str(n), f"query number {n}") for n in range(RUNS)))
        await drain(migrated, DyingEmbedder())
        return await ask(migrated, WordEmbedder(), text="query number 3", mode="hybrid")

    found = asyncio.run(stored())
    assert len(found.episodes) == RUNS
    assert found.episodes[0].query == "query number 3"
    asyncio.run(fill(migrated, WordEmbedder()))
    later = asyncio.run(ask(migrated, WordEmbedder(), text="query number 3", mode="vector"))
    assert len(later.episodes) == RUNS
