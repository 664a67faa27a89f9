"""Loads many episodes for `bench memory`, and draws requests for tenants of every size."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from bench.support.made_episodes import EpisodeMaker, MadeEpisode, store_episodes
from memory.embedding.interface import Embedder
from memory.retrieval.request import MemoryQuery, Mode

TENANTS: Final = 200
GROUPS: Final = {
    "1": (1, 1),
    "2-4": (2, 4),
    "5-16": (5, 16),
    "17-64": (17, 64),
    "65-200": (65, 200),
}
"""Tenants by rank, from the largest on; each group is measured for itself."""
LARGEST: Final = "1"
_DROP: Final = "DROP INDEX episode_vectors_hnsw"
_DEFINITION: Final = "SELECT pg_get_indexdef('episode_vectors_hnsw'::regclass)"


class DrawnRequest(NamedTuple):
    """A request, and the group of its tenant."""

    group: str
    query: MemoryQuery


async def load_episodes(connection: AsyncConnection[Any], count: int, embedder: Embedder) -> int:
    """Store `count` episodes, about, and build the index of vectors afterwards; return how many."""
    row = await (await connection.execute(_DEFINITION)).fetchone()
    create = str(row[0]).replace(" ON ONLY ", " ON ") if row else ""
    await connection.execute(_DROP)
    stored = await store_episodes(connection, EpisodeMaker(tenants=TENANTS).made(count), embedder)
    await connection.execute("SET maintenance_work_mem = '256MB'")
    await connection.execute(create.encode())
    await connection.execute("VACUUM ANALYZE")
    return stored


class RequestMaker:
    """Draws requests about made-up runs that are not stored; the same seed draws the same ones."""

    def __init__(self, seed: int = 11) -> None:
        self._maker = EpisodeMaker(seed, tenants=TENANTS)
        self._draw = random.Random(seed)

    def requests(
        self, mode: Mode, count: int, *, typed: bool, k: int = 10
    ) -> Iterator[DrawnRequest]:
        """Yield `count` requests for each group. `typed`: of one workflow type, with a context."""
        for group, (first, last) in GROUPS.items():
            for number in range(count):
                made = self._maker.of_tenant(f"tenant-{self._draw.randint(first, last)}")
                drawn = _request(made, mode, k, typed=typed)
                if mode == "exact":  # by turns of an equal query, and of an equal context
                    drawn = replace(drawn, text="") if number % 2 else replace(drawn, context=None)
                yield DrawnRequest(group, drawn)


def _request(made: MadeEpisode, mode: Mode, k: int, *, typed: bool) -> MemoryQuery:
    return MemoryQuery(
        text=made.query,
        context=made.context if typed else None,
        workflow_type=made.workflow_type if typed else None,
        tenant=made.tenant,
        mode=mode,
        k=k,
    )
