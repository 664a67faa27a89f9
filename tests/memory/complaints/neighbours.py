"""Tenants that share a partition of vectors, and requests to them."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import numpy as np
import psycopg

from bench.support.made_episodes import MadeEpisode
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.service import RetrievalService

EMBEDDER = WordLlamaEmbedder()


class Neighbours(NamedTuple):
    dsn: str
    """Of the owner; retrieval takes the role of the reader."""
    partition: str
    """Of the vectors of all three."""
    small: str
    large: str
    late: str
    """A tenant that has no rows yet."""
    made: list[MadeEpisode]

    def of(self, tenant: str) -> list[MadeEpisode]:
        """Return a tenant's episodes."""
        return [each for each in self.made if each.tenant == tenant]

    def ask(self, *queries: MemoryQuery) -> list[Retrieval]:
        """Return the answers, none of which is degraded."""

        async def run() -> list[Retrieval]:
            async with RetrievalService(self.dsn, [EMBEDDER], timeout_s=60) as service:
                return [await service.search(query) for query in queries]

        found = asyncio.run(run())
        assert [each.degraded for each in found] == [()] * len(queries)
        return found


def names_of_one_partition(
    owner: psycopg.Connection[Any], count: int
) -> tuple[str, tuple[str, ...]]:
    """Return a partition of vectors and names of tenants that belong to it."""
    rows = owner.execute(
        "SELECT 'tenant-' || n FROM generate_series(1, 500) n WHERE satisfies_hash_partition("
        "'episode_vectors'::regclass, 16, 0, 'tenant-' || n) LIMIT %s",
        [count],
    ).fetchall()
    return "episode_vectors_0", tuple(name for (name,) in rows)


def nearest(episodes: list[MadeEpisode], text: str, k: int) -> float:
    """Return the similarity of the k-th nearest episode; a result that is as near is right."""
    rows = EMBEDDER.embed([text, *(each.query for each in episodes)]).astype(np.float16)
    similarities = np.sort(rows[1:].astype(float) @ rows[0].astype(float))[::-1]
    return float(similarities[min(k, len(similarities)) - 1])


def recall(found: Retrieval, episodes: list[MadeEpisode], text: str, k: int) -> float:
    """Return the share of the k nearest that was found, where ties count."""
    least = nearest(episodes, text, k) - 2e-3
    right = sum((each.similarity or 0.0) >= least for each in found.episodes)
    return right / min(k, len(episodes))
