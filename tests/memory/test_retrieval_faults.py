"""Without a service, retrieval says what is missing and goes on; odd input is bounded work."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.embedding.interface import Embedder, EmbeddingUnavailable
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.retrieval import search
from memory.retrieval.request import MODES, MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.search import Search
from memory.retrieval.service import RetrievalService
from memory.retrieval.statements import statement
from tests.memory.stored_episodes import StoredEpisodes

pytestmark = pytest.mark.integration

EMBEDDER = WordLlamaEmbedder()
TEXT = "please cancel my flight"
CONTEXT = {"domain": "domain-0", "complexity": "low"}
GENEROUS_S = 60
"""For a busy machine; a service that hangs is given less."""


class OddEmbedder:
    """Has the name of the stored model, and answers as it is told."""

    model, dimensions = EMBEDDER.model, EMBEDDER.dimensions

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def embed(self, texts: Sequence[str], /) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        if callable(self._answer):
            return self._answer()
        return self._answer


class OtherModel(WordLlamaEmbedder):
    model = "another-model"  # type: ignore[misc]


def ask(
    dsn: str, *queries: MemoryQuery, embedder: Any = EMBEDDER, timeout_s: float = GENEROUS_S
) -> list[Retrieval]:
    async def run() -> list[Retrieval]:
        embedders: list[Embedder] = [embedder]
        async with RetrievalService(
            dsn, embedders, timeout_s=timeout_s, embedding_timeout_s=GENEROUS_S
        ) as service:
            return [await service.search(query) for query in queries]

    return asyncio.run(run())


def every_mode(tenant: str = "tenant-1") -> list[MemoryQuery]:
    return [
        MemoryQuery(
            text=TEXT, context=CONTEXT, workflow_type="workflow-3", tenant=tenant, mode=mode
        )
        for mode in MODES
    ]


@pytest.mark.parametrize(
    ("embedder", "said"),
    [
        (OddEmbedder(EmbeddingUnavailable("the endpoint is down")), "the endpoint is down"),
        (OddEmbedder(RuntimeError("surprise")), "failed: surprise"),
        (OddEmbedder(np.full((1, 256), np.nan, np.float32)), "NaN"),
        (OddEmbedder(np.ones((1, 3), np.float32)), "have 256 dimensions"),
        (OddEmbedder(np.zeros((0, 256), np.float32)), "failed"),
        (OtherModel(), "not configured here (another-model)"),
    ],
    ids=["away", "raises", "NaN", "dimension", "nothing", "other model"],
)
def test_without_a_usable_vector_everything_else_is_searched(
    stored: StoredEpisodes, embedder: Any, said: str
) -> None:
    exact, fuzzy, lexical, vector, hybrid = ask(stored.dsn, *every_mode(), embedder=embedder)
    assert (exact.degraded, fuzzy.degraded, lexical.degraded) == ((), (), ())
    assert lexical.episodes
    assert fuzzy.episodes
    assert vector.episodes == ()
    assert hybrid.episodes
    for found in (vector, hybrid):
        (reason,) = found.degraded
        assert reason.startswith("vectors were not searched: ")
        assert said in reason


def test_a_slow_model_delays_a_request_by_its_limit_only(stored: StoredEpisodes) -> None:
    release = threading.Event()
    embedder = OddEmbedder(release.wait)

    async def run() -> Retrieval:
        service = RetrievalService(
            stored.dsn, [embedder], timeout_s=GENEROUS_S, embedding_timeout_s=0.05
        )
        await service._pool.open()  # not `async with`, which waits until the model has loaded
        try:
            return await service.search(MemoryQuery(text=TEXT, tenant="tenant-1"))
        finally:
            release.set()
            await service.__aexit__(None, None, None)

    found = asyncio.run(run())
    assert found.episodes
    assert "did not answer within 0.05 s" in found.degraded[0]


@pytest.mark.parametrize("delay_s", [0, 0.2])
def test_without_vectors_in_the_database_everything_else_is_searched(
    migrated: str, delay_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_words = Search._with_words

    async def later(self: Search, *more: Any) -> AsyncIterator[None]:
        await asyncio.sleep(delay_s)  # until the error is there: this statement raises it then
        async for _ in with_words(self, *more):
            yield

    monkeypatch.setattr(Search, "_with_words", later)
    with psycopg.connect(migrated) as owner:
        owner.execute("DROP TABLE episode_vectors")
        owner.execute(
            "INSERT INTO memory_models (name, dimensions, state) VALUES (%s, 256, 'active')",
            [EMBEDDER.model],
        )
        owner.execute(
            "INSERT INTO episodes (id, tenant, workflow_type, workflow_id, started, ended, query,"
            " context_hash, events) VALUES (1, 'tenant-1', 'w', 'r', now(), now(), %s, 1, 1)",
            [TEXT],
        )
    queries = [
        MemoryQuery(text=TEXT, tenant="tenant-1", mode=mode)
        for mode in ("lexical", "vector", "hybrid")
    ]
    lexical, vector, hybrid = ask(migrated, *queries)
    assert (len(lexical.episodes), len(vector.episodes), len(hybrid.episodes)) == (1, 0, 1)
    assert lexical.degraded == ()
    assert "episode_vectors" in vector.degraded[0]
    assert "episode_vectors" in hybrid.degraded[0]


def test_an_empty_database_names_the_command(database: str) -> None:
    (found,) = ask(database, MemoryQuery(text=TEXT, mode="lexical"))
    assert found.episodes == ()
    assert "`headstart migrate`" in found.degraded[0]


def test_an_empty_memory_is_not_degraded_by_having_no_words(migrated: str) -> None:
    lexical, hybrid = ask(
        migrated, *(MemoryQuery(text=TEXT, mode=m) for m in ("lexical", "hybrid"))
    )
    assert (lexical.episodes, lexical.degraded) == ((), ())
    assert hybrid.degraded == ("vectors were not searched: none are stored yet",)


@contextmanager
def silent_server() -> Iterator[int]:
    """Accept connections and answer nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_without_a_database_requests_end_in_time_and_empty(closed: str) -> None:
    with silent_server() as port:
        host, _, closed_port = closed.partition(":")
        for dsn in (
            f"host={host} port={closed_port} dbname=x user=y",
            f"host=127.0.0.1 port={port} dbname=x user=y",
        ):
            begun = time.monotonic()
            for found in ask(dsn, *every_mode(), timeout_s=0.2):
                assert found.episodes == ()
                assert found.degraded
            assert time.monotonic() - begun < 15  # the model may have to be loaded first


def test_connections_that_were_lost_are_replaced(stored: StoredEpisodes) -> None:
    query = MemoryQuery(text=TEXT, tenant="tenant-1")

    async def run() -> list[Retrieval]:
        async with RetrievalService(stored.dsn, [EMBEDDER], timeout_s=GENEROUS_S) as service:
            before = await asyncio.gather(*(service.search(query) for _ in range(8)))
            with psycopg.connect(stored.owner_dsn, autocommit=True) as owner:
                owner.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
                    " application_name = 'headstart-memory' AND datname = current_database()"
                )
            after = await asyncio.gather(*(service.search(query) for _ in range(8)))
            return [*before, *after]

    found = asyncio.run(run())
    assert [each.degraded for each in found] == [()] * 16
    assert len({each.episodes for each in map(freeze, found)}) == 1


def freeze(found: Retrieval) -> Any:
    return found._replace(episodes=tuple(each.id for each in found.episodes))  # type: ignore[arg-type]


def test_a_query_that_takes_too_long_is_given_up(stored: StoredEpisodes) -> None:
    with psycopg.connect(stored.owner_dsn) as owner:
        owner.execute("LOCK TABLE episodes")
        (found,) = ask(
            stored.dsn, MemoryQuery(text=TEXT, mode="lexical", tenant="tenant-1"), timeout_s=0.5
        )
        owner.rollback()
    assert found.episodes == ()
    assert found.degraded


def test_a_slow_part_of_a_hybrid_search_leaves_the_others(
    stored: StoredEpisodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping = "SELECT 1 FROM pg_sleep(600) WHERE %(k)s > 0 OR %(words)s <> ''"

    def slow(name: str) -> Any:
        return sleeping if name == "words" else statement(name)

    monkeypatch.setattr(search, "statement", slow)
    query = MemoryQuery(text=TEXT, tenant="tenant-1", k=5)
    (found,) = ask(stored.dsn, query, timeout_s=16)
    assert len(found.episodes) == 5
    assert all(each.similarity is not None for each in found.episodes)
    assert found.degraded == ("words were not searched: Postgres did not answer within 8 s",)


ODD = [
    "x" * 1_000_000, "cancel " * 150_000,
    "'; DROP TABLE episodes; --", "100% _ \\ %s %(a)s {filter}",
    "a & b | !c <-> d:* ((", "'a' | 'b\\", "\0\ud800\udfff", "🦜🏴\U000e0067", "\u202egnirts",
    "ﷺ" * 9_000, "!!!", "NULL", "-1",
]  # fmt: skip


def test_odd_texts_are_bounded_work(stored: StoredEpisodes) -> None:
    queries = [
        MemoryQuery(text=text, tenant="tenant-1", mode=mode)
        for text in ODD
        for mode in ("exact", "lexical", "vector", "hybrid")
    ]
    for found in ask(stored.dsn, *queries):
        assert found.degraded == ()


CONTEXTS: list[dict[str, Any]] = [
    {str(number): "v" * 100 for number in range(10_000)},
    {"domain": {"$gt": ""}, "%": "_", "'": '"', "\0": "\ud800", "": None},
    {"n": float("nan"), "big": 10**400, "deep": [[[[[]]]]]},
]


def test_large_and_odd_contexts_are_bounded_work(stored: StoredEpisodes) -> None:
    wanted: list[dict[str, Any]] = [{"mode": "exact", "keys": ("domain",)}, {"mode": "exact"}, {}]
    queries = [
        MemoryQuery(
            text=TEXT, context=context, workflow_type="workflow-3", tenant="tenant-1", **more
        )
        for context in CONTEXTS
        for more in wanted
    ]
    queries += [
        MemoryQuery(context=context, tenant="tenant-1", mode="fuzzy")
        for context in (*CONTEXTS[1:], dict(list(CONTEXTS[0].items())[:256]))
    ]
    for found in ask(stored.dsn, *queries):
        assert found.degraded == ()


@settings(max_examples=10)
@given(texts=st.lists(st.text(min_size=1), min_size=20, max_size=20))
def test_any_text_is_answered(stored: StoredEpisodes, texts: list[str]) -> None:
    queries = [
        MemoryQuery(text=text, tenant="tenant-1", mode=mode)
        for text in texts
        if text.strip()
        for mode in ("exact", "lexical", "hybrid")
    ]
    for found in ask(stored.dsn, *queries):
        assert found.degraded == ()
