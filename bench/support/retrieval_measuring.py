"""Measures retrieval for `bench memory`: recall, missing results, wall time and CPU."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from bench.support.measuring import echo
from bench.support.retrieval_load import (
    GROUPS,
    LARGEST,
    DrawnRequest,
    RequestMaker,
    load_episodes,
)
from memory.embedding.interface import Embedder
from memory.retrieval.fusion import vector_text
from memory.retrieval.request import Mode
from memory.retrieval.result import Retrieval
from memory.retrieval.service import RetrievalService
from sinks.connections import connect_postgres

SAMPLES: Final = 60
"""Requests of each kind for each group of tenants."""
DEEP_SAMPLES: Final = 4
_KINDS: Final[tuple[tuple[str, Mode, bool], ...]] = (
    ("exact", "exact", True),
    ("vector", "vector", False),
    ("vector_of_type", "vector", True),
    ("hybrid", "hybrid", False),
    ("hybrid_of_type", "hybrid", True),
)
"""Name, mode, and whether the request names a workflow type and a context."""
_NEAREST: Final = """SELECT v <=> %(vector)s::halfvec AS distance FROM episode_vectors
    WHERE tenant = %(tenant)s AND (%(type)s::text IS NULL OR workflow_type = %(type)s)
    ORDER BY (v <=> %(vector)s::halfvec) + 0 LIMIT %(k)s"""
_BACKEND: Final = """SELECT pid FROM pg_stat_activity
    WHERE application_name = 'headstart-memory' AND datname = current_database()"""
_TOLERANCE: Final = 1e-6


class TimedRetrieval(NamedTuple):
    """A request, its answer, and what it took."""

    drawn: DrawnRequest
    found: Retrieval
    wall_ms: float
    cpu_ms: float


async def measure_retrieval(dsn: str, episodes: int, embedder: Embedder) -> dict[str, Any]:
    """Load episodes into an empty migrated database, and measure requests as its reader."""
    begun = time.monotonic()
    reader = make_conninfo(dsn, user="headstart_reader")
    async with await connect_postgres(dsn) as connection:
        stored = await load_episodes(connection, episodes, embedder)
        echo(f"{stored:,} episodes, loaded and indexed in {time.monotonic() - begun:.0f} s")
        async with RetrievalService(reader, [embedder], timeout_s=60, connections=1) as service:
            measuring = _Measuring(connection, service, embedder)
            return {"episodes": stored, **await measuring.figures()}


class _Measuring:
    def __init__(
        self, connection: AsyncConnection[Any], service: RetrievalService, embedder: Embedder
    ) -> None:
        self._connection, self._service, self._embedder = connection, service, embedder
        self._draw = RequestMaker()

    async def figures(self) -> dict[str, Any]:
        """Return the benchmark's fields."""
        for drawn in self._draw.requests("hybrid", 10, typed=True):
            await self._service.search(drawn.query)  # connects, and warms the caches
        found = {}
        for name, mode, typed in _KINDS:
            found[name] = await self._ask(self._draw.requests(mode, SAMPLES, typed=typed))
            echo(f"{name}: {_table(found[name])}")
        deep = await self._ask(
            chain.from_iterable(
                self._draw.requests(mode, DEEP_SAMPLES, typed=typed, k=k)
                for mode in ("vector", "hybrid")
                for k, typed in ((1, False), (50, True), (500, False))
            )
        )
        recall = {
            f"{name} {group}": value
            for name in ("vector", "vector_of_type")
            for group, value in (await self._recall(found[name])).items()
        }
        hybrid = [*found["hybrid"], *found["hybrid_of_type"]]
        return {
            "recall_at_10": min(recall.values()),
            "short_results": await self._short([*chain(*found.values()), *deep]),
            "degraded": sum(bool(each.found.degraded) for each in [*chain(*found.values()), *deep]),
            "exact_p95_ms": _p95(each.wall_ms for each in found["exact"]),
            "exact_cpu_p95_ms": _p95(each.cpu_ms for each in found["exact"]),
            "hybrid_p95_ms": _p95(each.wall_ms for each in hybrid),
            "hybrid_cpu_p95_ms": _p95(each.cpu_ms for each in hybrid),
            "hybrid_cpu_p95_ms_largest": _p95(
                each.cpu_ms for each in hybrid if each.drawn.group == LARGEST
            ),
            "recall": recall,
            "requests": {name: _table(each) for name, each in found.items()},
        }

    async def _ask(self, requests: Iterable[DrawnRequest]) -> list[TimedRetrieval]:
        timed = []
        for drawn in requests:
            pid = await self._backend()
            before, begun = _cpu_ms(pid), time.perf_counter()
            found = await self._service.search(drawn.query)
            wall_ms = (time.perf_counter() - begun) * 1000
            timed.append(TimedRetrieval(drawn, found, wall_ms, _cpu_ms(pid) - before))
        return timed

    async def _backend(self) -> int:
        row = await (await self._connection.execute(_BACKEND)).fetchone()
        return int(row[0]) if row else 0

    async def _distances(self, drawn: DrawnRequest, k: int) -> list[float]:
        query = drawn.query
        which = {
            "vector": vector_text(self._embedder.embed([query.text])[0]),
            "tenant": query.tenant,
            "type": query.workflow_type,
            "k": k,
        }
        found = await self._connection.execute(_NEAREST, which)
        return [distance for (distance,) in await found.fetchall()]

    async def _recall(self, timed: Sequence[TimedRetrieval]) -> Mapping[str, float]:
        """Return the mean share of each group's ten nearest that were found, ties included."""
        shares: dict[str, list[float]] = {}
        for each in timed:
            nearest = await self._distances(each.drawn, 10)
            if not nearest:
                continue
            limit = nearest[-1] + _TOLERANCE
            near = sum(1 - (one.similarity or 0) <= limit for one in each.found.episodes)
            shares.setdefault(each.drawn.group, []).append(min(1.0, near / len(nearest)))
        return {group: round(sum(each) / len(each), 4) for group, each in shares.items()}

    async def _short(self, timed: Sequence[TimedRetrieval]) -> int:
        """Return how many requests got fewer than min(k, matching) results."""
        short = 0
        for each in timed:
            if each.drawn.query.mode == "exact":
                continue
            matching = len(await self._distances(each.drawn, each.drawn.query.k))
            short += len(each.found.episodes) < matching
        return short


def _cpu_ms(pid: int) -> float:
    """Return the CPU that a process has used, in ms (Linux only)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def _p95(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return round(ordered[int(len(ordered) * 0.95)], 2)


def _table(timed: Sequence[TimedRetrieval]) -> dict[str, Any]:
    """Return p50 and p95 of wall time and CPU for each group, in ms."""
    groups = {}
    for group in GROUPS:
        some = [each for each in timed if each.drawn.group == group]
        wall, cpu = sorted(each.wall_ms for each in some), sorted(each.cpu_ms for each in some)
        at = (len(some) // 2, int(len(some) * 0.95))
        groups[group] = {
            "wall_ms": [round(wall[place], 2) for place in at],
            "cpu_ms": [round(cpu[place], 2) for place in at],
        }
    return groups
