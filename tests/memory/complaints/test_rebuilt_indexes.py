"""After many deletes a partition's HNSW index is built anew, and holds none of the vectors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql

from sinks.connections import connect_postgres
from sinks.postgres.reclaiming import LEAST_DEAD, maintain_indexes, reclaim
from tests.memory.complaints.neighbours import names_of_one_partition
from tests.patience import until

pytestmark = pytest.mark.integration

ROWS = 1_500
DEAD = 700
PARTITION = "episode_vectors_0"
DELETED = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = %s"
INDEXES = """
    SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = %s::regclass ORDER BY 1
"""


def vectors() -> Any:
    return np.random.default_rng(7).normal(size=(ROWS, 256)).astype(np.float16)


@pytest.fixture
def sparse(migrated: str) -> str:
    """A database one of whose partitions has lost nearly half of its vectors."""
    with psycopg.connect(migrated, autocommit=True) as owner:
        table = sql.Identifier(PARTITION)
        owner.execute(sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = false)").format(table))
        _, (tenant,) = names_of_one_partition(owner, 1)
        with (
            owner.cursor() as cursor,
            cursor.copy(
                "COPY episode_vectors (tenant, episode, model, workflow_type, ended, text_hash, v) "
                "FROM STDIN"
            ) as copy,
        ):
            for number, vector in enumerate(vectors()):
                text = "[" + ",".join(map(str, vector.tolist())) + "]"
                copy.write_row((tenant, number, 1, "refund", "2026-01-01", number, text))
        owner.execute("DELETE FROM episode_vectors WHERE episode < %s", [DEAD])
    with psycopg.connect(migrated, autocommit=True) as owner:
        until(lambda: (owner.execute(DELETED, [PARTITION]).fetchone() or (0,))[0] >= DEAD)
    return migrated


def held(dsn: str, relation: str, first: int, end: int) -> int:
    """Return how many of the vectors a relation's file holds; an index has them of length 1."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CHECKPOINT")
        row = owner.execute(
            "SELECT pg_backend_pid(), pg_relation_filepath(%s::regclass)", [relation]
        ).fetchone()
        assert row
        data = Path(f"/proc/{row[0]}/cwd", row[1]).read_bytes()  # the data directory
    rows = vectors()[first:end]
    if relation != PARTITION:
        norms = np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
        rows = (rows.astype(float) / norms).astype(np.float32).astype(np.float16)
    return sum(row[:16].tobytes() in data for row in rows)


def index_of(dsn: str) -> str:
    with psycopg.connect(dsn) as owner:
        found = owner.execute(INDEXES, [PARTITION]).fetchall()
    (name,) = (name for name, valid in found if name.endswith("_v_idx") and valid)
    return str(name)


def run(dsn: str, work: Any) -> tuple[list[Any], list[str]]:
    said: list[str] = []

    async def steps() -> list[Any]:
        async with await connect_postgres(dsn) as connection:
            return list(await work(connection, said.append))

    return asyncio.run(steps()), said


def test_deleted_vectors_leave_the_file_of_the_index(sparse: str) -> None:
    index = index_of(sparse)
    assert held(sparse, index, 0, DEAD) == DEAD >= LEAST_DEAD
    found, said = run(sparse, maintain_indexes)
    assert [(each.table, upkeep) for each, upkeep in found] == [(PARTITION, "rebuild")]
    assert said == [
        f"building the index {index} anew: {DEAD} of its rows are deleted",
        f"vacuum of {PARTITION}: {DEAD} deleted rows",
    ]
    assert index_of(sparse) == index
    assert held(sparse, index, 0, DEAD) == 0
    assert held(sparse, index, DEAD, ROWS) == ROWS - DEAD
    until(lambda: run(sparse, maintain_indexes) == ([], []))


def test_a_full_vacuum_leaves_no_byte_in_the_files(sparse: str) -> None:
    async def full(connection: Any, echo: Any) -> Any:
        return await reclaim(connection, echo, full=True)

    assert held(sparse, PARTITION, 0, DEAD) == DEAD
    _, said = run(sparse, full)
    assert f"writing {PARTITION} anew: {DEAD} deleted rows" in said
    for relation in (PARTITION, index_of(sparse)):
        assert held(sparse, relation, 0, DEAD) == 0
        assert held(sparse, relation, DEAD, ROWS) == ROWS - DEAD


def test_what_an_interrupted_build_left_is_dropped(sparse: str) -> None:
    index = index_of(sparse)
    with psycopg.connect(sparse, autocommit=True) as owner, psycopg.connect(sparse) as old:
        old.execute("SELECT FROM episode_vectors")  # a build waits for it
        owner.execute("SET statement_timeout = '500ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            owner.execute(sql.SQL("REINDEX INDEX CONCURRENTLY {}").format(sql.Identifier(index)))
        left = [name for name, valid in owner.execute(INDEXES, [PARTITION]) if not valid]
        assert len(left) == 1
        old.rollback()
        run(sparse, reclaim)
        assert all(valid for _, valid in owner.execute(INDEXES, [PARTITION]))
