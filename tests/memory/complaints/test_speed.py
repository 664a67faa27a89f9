"""Memories that took minutes for what a database does in a second.

Bounds are many times what was measured, so that a busy machine does not fail them, and far below
what was reported.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from agents.memory.assembling import assemble_next
from bench.support.backend_cpu import backend_cpu_s
from bench.support.purge_measuring import measure_purge
from memory.embedding.choice import EmbeddingConfig, make_embedder
from tests.memory.complaints.assembling import worker
from tests.memory.stored_runs import rows, run, store

pytestmark = pytest.mark.integration

RUNS = 400
LEAST_PER_CPU_S = 20.0
"""Episodes; a thousand were measured. Of a hundred in an hour were reported."""
CASES = 2_000
MOST_S = 5.0


def test_episodes_are_stored_without_a_language_model(migrated: str) -> None:
    """graphiti #1262: 100 records an hour, because each took several calls of a language model."""
    embedder = make_embedder(EmbeddingConfig())
    embedder.embed(["warm"])
    runs = [run("a", str(n), f"cancel the order {n}") for n in range(RUNS)]

    async def steps() -> float:
        begun = time.process_time()
        await store(migrated, [event for each in runs for event in each])
        async with worker(migrated, embedder) as target:
            while (await assemble_next(target, 500, 0)).rows:
                pass
            return time.process_time() - begun + backend_cpu_s(target.connection)

    took = asyncio.run(steps())
    stored = (
        "SELECT count(*), count(v.v) FROM episodes e JOIN episode_vectors v ON e.id = v.episode"
    )
    assert rows(migrated, stored) == [(RUNS, RUNS)]
    assert RUNS / took > LEAST_PER_CPU_S, f"{took:.1f} s of CPU"


def test_many_cases_are_erased_at_once(database: str) -> None:
    """MemOS #1103: to reset 793 memories took 142 s."""
    found = asyncio.run(measure_purge(database, CASES))
    assert (found["purged_cases"], found["canary_bytes"]) == (CASES, 0)
    assert found["purge_100000_s"] < MOST_S
