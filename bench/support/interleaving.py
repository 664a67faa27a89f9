"""Runs random operations of two tenants beside each other and counts what crosses between them.

Reads go through every path of `read_paths`, writes through the sink and the memory worker; both
over pooled connections that the two tenants share, eight operations at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from agents.memory.assembling import StepTarget
from agents.memory.embedding import GuardedEmbedder
from bench.support.marked_tenants import (
    TENANTS,
    add_settings,
    add_thresholds,
    made_runs,
    mark,
    store_runs,
)
from bench.support.measuring import echo
from bench.support.read_paths import READS, WEIGHTS, Read, ReadPaths
from memory.embedding.interface import Embedder
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.episodes.hashes import episode_id
from memory.retrieval.client import Memory
from memory.retrieval.journal import apply_judgements
from memory.retrieval.service import RetrievalService
from memory.store.vectors import can_store_vectors, use_model
from sinks.connections import connect_postgres
from sinks.postgres.episodes import EpisodeSink

RUNS: Final = 100
"""Of each tenant."""
AT_ONCE: Final = 8
SAY_EVERY: Final = 1_000
_WRITE_SHARE: Final = 0.1
_TIMEOUT_S: Final = 120.0
_STATE: Final = "UPDATE episodes SET state = %s WHERE tenant = %s AND workflow_id = %s"


@dataclass
class Crossing:
    """What was done, and what of it crossed."""

    operations: int = 0
    crossed: int = 0
    """Results with a row of the other tenant."""
    examples: list[str] = field(default_factory=list)
    """Of the first ones, the path and the tenant that asked."""
    answered: Counter[str] = field(default_factory=Counter)
    """Results with a row of the own tenant, by path: one that finds nothing shows nothing."""

    def note(self, path: str, tenant: str, found: str) -> None:
        """Count one result, as text."""
        self.operations += 1
        if self.operations % SAY_EVERY == 0:
            echo(f"{self.operations:,} operations, {self.crossed} crossed")
        (other,) = set(TENANTS) - {tenant}
        if path != "write":
            self.answered[path] += mark(tenant) in found
        if mark(other) in found:
            self.crossed += 1
            self.examples = [*self.examples, f"{path} of {tenant}"][:10]


async def interleave(
    dsn: str,
    operations: int,
    *,
    runs: int = RUNS,
    seed: int = 1,
    reads: Mapping[str, Read] = READS,
) -> Crossing:
    """Run `operations` operations on a migrated, empty database; return what crossed."""
    embedder = WordLlamaEmbedder()
    result = Crossing()
    async with (
        await connect_postgres(dsn) as connection,
        await EpisodeSink.open(dsn) as sink,
        _read_paths(dsn, embedder, runs) as paths,
    ):
        await can_store_vectors(connection)
        model = await use_model(connection, embedder)
        writer = _Writer(sink, StepTarget(connection, GuardedEmbedder(embedder), model.id), paths)
        await writer.store_all()
        await asyncio.gather(
            *(
                _some(paths, writer, result, reads, f"{seed} {number}", count)
                for number, count in enumerate(_shares(operations))
            )
        )
    return result


def _shares(operations: int) -> list[int]:
    return [operations // AT_ONCE + (number < operations % AT_ONCE) for number in range(AT_ONCE)]


@asynccontextmanager
async def _read_paths(dsn: str, embedder: Embedder, runs: int) -> AsyncIterator[ReadPaths]:
    pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
        dsn, kwargs={"autocommit": True}, min_size=1, max_size=3, timeout=_TIMEOUT_S, open=False
    )
    service = RetrievalService(
        dsn, [embedder], timeout_s=_TIMEOUT_S, embedding_timeout_s=_TIMEOUT_S, connections=3,
        journal=True,
    )  # fmt: skip
    async with pool, service:
        with Memory(dsn, embedders=[embedder], timeout_s=_TIMEOUT_S) as memory:
            logged: dict[str, list[str]] = {tenant: [] for tenant in TENANTS}
            yield ReadPaths(service, memory, pool, made_runs(runs), logged)


async def _some(
    paths: ReadPaths,
    writer: _Writer,
    result: Crossing,
    reads: Mapping[str, Read],
    seed: str,
    count: int,
) -> None:
    names = list(reads)
    weights = [WEIGHTS.get(name, 1.0) for name in names]
    for step in range(count):
        draw = random.Random(f"{seed} {step}")  # whatever the operation before has drawn
        tenant = draw.choice(TENANTS)
        if draw.random() < _WRITE_SHARE:
            await writer.change(tenant, draw)
            result.note("write", tenant, "")
            continue
        (name,) = draw.choices(names, weights)
        found = await reads[name](paths, tenant, draw)
        result.note(name, tenant, repr(found))


class _Writer:
    """Changes rows of a tenant, one change at a time: sink and worker have one connection each."""

    def __init__(self, sink: EpisodeSink, target: StepTarget, paths: ReadPaths) -> None:
        self._sink, self._target, self._paths = sink, target, paths
        self._one_at_a_time = asyncio.Lock()

    async def store_all(self) -> None:
        """Store all runs of both tenants, their thresholds and settings."""
        runs = self._paths.runs
        await store_runs(self._sink, self._target, [(t, made, 0) for made in runs for t in TENANTS])
        await add_thresholds(self._target.connection)
        await add_settings(self._target.connection)
        # Without statistics a join of vectors and episodes reads the tenant once for each vector.
        await self._target.connection.execute("ANALYZE")

    async def change(self, tenant: str, draw: random.Random) -> None:
        """Add to a run, set one aside or bring it back, or judge a retrieval."""
        made = draw.choice(self._paths.runs)
        kind = draw.choice(("event", "state", "judge"))
        if kind == "judge":
            id = draw.choice(self._paths.logged[tenant] or ["00000000-0000-0000-0000-000000000000"])
            own = episode_id(tenant, made.workflow_type, made.workflow_id)
            data = {"episodes": [str(own)], "accepted": draw.random() < 0.9}
            await self._paths.service.log(tenant, id, "evaluate", data)
        async with self._one_at_a_time:
            if kind == "event":
                run = (tenant, made, draw.randint(1, 3))
                await store_runs(self._sink, self._target, [run])
            elif kind == "state":
                state = draw.choice(("live", "live", "quarantined"))
                await self._target.connection.execute(_STATE, [state, tenant, made.workflow_id])
            else:
                await apply_judgements(self._target.connection, tenant)
