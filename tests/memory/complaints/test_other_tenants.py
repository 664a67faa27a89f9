"""No tenant sees another one's rows, nor what depends on them.

cognee #3520: recall ignored the dataset. graphiti #632, #1651, #1705, #1842: the group was ignored,
or was that of another request over a shared driver. pgEdge #50: row-level security over one HNSW
index found 0 of 10, and counts and times told how dense the neighbours are.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from bench.support.interleaving import interleave
from bench.support.made_episodes import store_episodes
from bench.support.read_paths import READS, ReadPaths
from memory.retrieval import search
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.search import vector_text
from memory.retrieval.statements import filters_of, statement, vector_statement
from sinks.connections import connect_postgres
from sinks.postgres.reading import tenant_scope
from tests.memory.complaints.neighbours import EMBEDDER, Neighbours

pytestmark = pytest.mark.integration

ALL_ROWS = "SELECT query, response FROM episodes"


def test_nothing_crosses_between_interleaved_tenants(migrated: str) -> None:
    """2,000 operations; `python -m bench purge` runs 100,000."""
    found = asyncio.run(interleave(migrated, 2_000, runs=40))
    assert (found.operations, found.crossed, found.examples) == (2_000, 0, [])
    assert found.answered.keys() == READS.keys()
    assert min(found.answered.values()) > 0


async def _forgets(at: ReadPaths, _tenant: str, _draw: random.Random) -> Any:
    async with at.pool.connection() as connection:
        return await (await connection.execute(ALL_ROWS)).fetchall()


async def _forgets_in_a_scope(at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    async with at.pool.connection() as connection, tenant_scope(connection, tenant):
        return await (await connection.execute(ALL_ROWS)).fetchall()


def test_a_path_that_forgets_its_tenant_is_noticed_and_a_scope_stops_it(migrated: str) -> None:
    paths = {"forgets": _forgets, "forgets in a scope": _forgets_in_a_scope}
    found = asyncio.run(interleave(migrated, 60, runs=5, reads=paths))
    assert found.crossed == found.answered["forgets"] > 0
    assert {each.partition(" of ")[0] for each in found.examples} == {"forgets"}
    assert found.answered["forgets in a scope"] > 0


def requests(neighbours: Neighbours) -> list[MemoryQuery]:
    made = neighbours.of(neighbours.small)
    both: dict[str, Any] = {"tenant": neighbours.small}
    return [
        query
        for each in made[:4]
        for k in (1, 10, 500)
        for query in (
            *(MemoryQuery(text=each.query, k=k, mode=mode, **both)  # type: ignore[arg-type]
              for mode in ("exact", "lexical", "vector", "hybrid")),
            MemoryQuery(context=each.context, mode="fuzzy", k=k, **both),
            MemoryQuery(text=each.query, k=k, diversity=0.5, outcome="success", **both),
        )
    ]  # fmt: skip


def answers(found: list[Retrieval]) -> list[Any]:
    return [[(each.id, each.score, each.similarity) for each in one.episodes] for one in found]


def plans(neighbours: Neighbours) -> dict[str, list[str]]:
    """The indexes that each statement of the reader uses; nothing is read but by the tenant."""
    made = neighbours.of(neighbours.small)[0]
    query = MemoryQuery(text=made.query, tenant=neighbours.small)
    vector = vector_text(EMBEDDER.embed([made.query])[0])
    which = {
        **filters_of(query), "tenant": query.tenant, "k": 10, "query_hash": 1, "context_hash": 1,
        "ids": [each.id for each in neighbours.of(neighbours.small)[:10]], "model": 1,
        "limit": 6_001, "vector": vector, "timeout": "60000", "role": "none",
    }  # fmt: skip
    texts = {name: statement(name) for name in ("equal_query", "equal_context", "episodes")}
    texts |= {
        name: vector_statement(name, frozenset(), whole=False)
        for name in ("count_vectors", "nearest_exact", "nearest_hnsw")
    }
    with psycopg.connect(make_conninfo(neighbours.dsn, user="headstart_reader")) as reader:
        reader.execute(statement("settings"), which)
        return {
            name: indexes(reader.execute(b"EXPLAIN (FORMAT JSON) " + text, which).fetchone())
            for name, text in texts.items()
        }


def indexes(row: Any) -> list[str]:
    found, waiting = [], [row[0][0]["Plan"]]
    while waiting:
        node = waiting.pop()
        assert node["Node Type"] != "Seq Scan", node
        if "Index Name" in node:
            assert "tenant" in node["Index Cond"], node
            found.append(node["Index Name"])
        waiting += node.get("Plans", [])
    return found


async def add_near_copies(neighbours: Neighbours, times: int) -> None:
    """Store the episodes of the small tenant again, and again, as those of the late one."""
    copies = [
        each._replace(tenant=neighbours.late, workflow_id=f"{each.workflow_id}-{number}")
        for number in range(times)
        for each in neighbours.of(neighbours.small)
    ]
    async with await connect_postgres(neighbours.dsn) as connection:
        await store_episodes(connection, iter(copies), EMBEDDER)
        await connection.execute("ANALYZE episodes, episode_vectors")


def test_answers_counts_and_plans_do_not_depend_on_another_tenants_rows(
    neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(neighbours)
    before, planned = answers(neighbours.ask(*asked)), plans(neighbours)
    assert all(planned.values())
    asyncio.run(add_near_copies(neighbours, 8))
    assert answers(neighbours.ask(*asked)) == before
    assert plans(neighbours) == planned
    monkeypatch.setattr(search, "EXACT_ROWS", 10)  # by the index, as large tenants are searched
    indexed = neighbours.ask(*asked)
    assert [len(each.episodes) for each in indexed] == [len(each) for each in before]
