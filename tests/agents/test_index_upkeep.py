"""The indexes of vectors after mass deletes: rebuilt or vacuumed by the share that is gone."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from structlog.testing import capture_logs

from agents.memory.embedding import GuardedEmbedder
from agents.memory.index_upkeep import IndexUpkeep
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.worker import MemoryWorker
from memory.store.limits import RetentionLimits
from sinks.connections import connect_postgres
from sinks.postgres.reclaiming import LEAST_DEAD, DeadRows, maintain_indexes
from tests.memory.stored_runs import WordEmbedder
from tests.patience import until, until_in_loop

pytestmark = pytest.mark.integration

ROWS, K = 600, 10
DELETED = {"episode_vectors_0": 240, "episode_vectors_1": 24, "episode_vectors_2": 5}
"""Of three partitions: two fifths, one in 25, and too few to matter."""
LEAST = 20
TENANTS = """
    SELECT (SELECT min('tenant-' || n) FROM generate_series(1, 500) AS n WHERE
        satisfies_hash_partition('episode_vectors'::regclass, 16, part, 'tenant-' || n))
    FROM generate_series(0, 2) AS part
"""
DEAD = "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0"
FILE = "SELECT pg_relation_filenode(%s::regclass)"
NEAREST = "SELECT episode FROM {} ORDER BY v <=> %s::halfvec(256) LIMIT {}"


@pytest.mark.parametrize(
    ("live", "dead", "hnsw", "upkeep"),
    [
        (10_000, 0, "i", "none"),
        (100, LEAST_DEAD - 1, "i", "none"),
        (0, LEAST_DEAD, "i", "rebuild"),
        (9_500, 500, "i", "vacuum"),  # no more than a twentieth
        (9_499, 501, "i", "rebuild"),
        (100_000, 5_000, "i", "vacuum"),
        (100_000, 6_000, "i", "rebuild"),
        (100, 5_000, None, "none"),
    ],
)
def test_number_and_share_of_deleted_rows_decide(
    live: int, dead: int, hnsw: str | None, upkeep: str
) -> None:
    assert DeadRows("t", live, dead, hnsw, True, False).upkeep() == upkeep


def vectors() -> Any:
    return np.random.default_rng(11).normal(size=(ROWS, 256)).astype(np.float16)


def text_of(vector: Any) -> str:
    return "[" + ",".join(map(str, vector.tolist())) + "]"


@pytest.fixture
def thinned(migrated: str) -> str:
    """A database that has lost vectors of three partitions."""
    with psycopg.connect(migrated, autocommit=True) as owner:
        tenants = [name for (name,) in owner.execute(TENANTS).fetchall()]
        for (table, dead), tenant in zip(DELETED.items(), tenants, strict=True):
            name = sql.Identifier(table)
            off = sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = false)")
            owner.execute(off.format(name))
            with (
                owner.cursor() as cursor,
                cursor.copy(
                    "COPY episode_vectors (tenant, episode, model, workflow_type, ended, "
                    "text_hash, v) FROM STDIN"
                ) as copy,
            ):
                for number, vector in enumerate(vectors()):
                    copy.write_row(
                        (tenant, number, 1, "refund", "2026-01-01", number, text_of(vector))
                    )
            owner.execute(sql.SQL("DELETE FROM {} WHERE episode < {}").format(name, dead))
    with psycopg.connect(migrated, autocommit=True) as owner:
        until(lambda: DELETED.items() <= dict(owner.execute(DEAD).fetchall()).items())
    return migrated


def recalls(dsn: str) -> dict[str, float]:
    """Return the recall of each partition's index: the share of the nearest that it finds."""
    found = {}
    queries = np.random.default_rng(12).normal(size=(20, 256)).astype(np.float16)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("SET hnsw.ef_search = 100")
        for table, dead in DELETED.items():
            kept = vectors()[dead:].astype(float)
            kept /= np.linalg.norm(kept, axis=1, keepdims=True)
            right = 0
            for query in queries:
                exact = dead + np.argsort(-(kept @ query.astype(float)))[:K]
                asked = sql.SQL(NEAREST).format(sql.Identifier(table), K)
                owner.execute("SET enable_seqscan = off")
                rows = owner.execute(asked, [text_of(query)]).fetchall()
                right += len({int(each) for each in exact} & {episode for (episode,) in rows})
            found[table] = right / K / len(queries)
    return found


def files(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as owner:
        return {
            table: (owner.execute(FILE, [f"{table}_v_idx"]).fetchone() or (0,))[0]
            for table in DELETED
        }


def dead(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as owner:
        found = dict(owner.execute(DEAD).fetchall())
    return {table: found.get(table, 0) for table in DELETED}


def test_the_worker_rebuilds_or_vacuums_and_recall_is_not_lower(thinned: str) -> None:
    """In the role of the memory worker, which owns no table."""
    before, old = recalls(thinned), files(thinned)
    as_worker = make_conninfo(thinned, user="headstart_worker")

    async def maintain() -> None:
        upkeep = IndexUpkeep(as_worker, settle_s=0, least=LEAST)
        upkeep.begin()
        upkeep.begin()  # it is under way
        await until_in_loop(lambda: upkeep.done == 1)
        await upkeep.close()

    with capture_logs() as logged:
        asyncio.run(maintain())
    said = [(each["event"], each["table"], each["by"], each["deleted"]) for each in logged]
    assert said == [
        ("memory.index_maintained", "episode_vectors_0", "rebuild", 240),
        ("memory.index_maintained", "episode_vectors_1", "vacuum", 24),
    ]
    now = files(thinned)
    assert {table for table in DELETED if now[table] != old[table]} == {"episode_vectors_0"}
    until(lambda: dead(thinned) == {**dict.fromkeys(DELETED, 0), "episode_vectors_2": 5})
    after = recalls(thinned)
    assert min(before.values()) > 0.9
    assert all(after[table] >= before[table] for table in DELETED), (before, after)


def test_what_an_interrupted_build_left_is_named_and_none_is_added(thinned: str) -> None:
    """Only the owner may drop it, so the worker vacuums until then."""
    as_worker = make_conninfo(thinned, user="headstart_worker")
    index = "episode_vectors_0_v_idx"
    with psycopg.connect(thinned, autocommit=True) as owner, psycopg.connect(thinned) as old:
        old.execute("SELECT FROM episode_vectors")  # a build waits for it
        owner.execute("SET statement_timeout = '500ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            owner.execute(sql.SQL("REINDEX INDEX CONCURRENTLY {}").format(sql.Identifier(index)))

    async def maintain(dsn: str) -> tuple[list[Any], list[str]]:
        said: list[str] = []
        async with await connect_postgres(dsn) as connection:
            return await maintain_indexes(connection, said.append, LEAST), said

    found, said = asyncio.run(maintain(as_worker))
    assert [upkeep for _each, upkeep in found] == ["vacuum", "vacuum"]
    assert re.match(rf"warning: an interrupted build has left {index}_cc\w+: run DROP", said[0])
    with psycopg.connect(thinned, autocommit=True) as owner:
        owner.execute("DELETE FROM episode_vectors_0 WHERE episode < 400")
        until(lambda: dead(thinned)["episode_vectors_0"] == 160)
        with psycopg.connect(thinned) as other:
            other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [LOCK])
            assert asyncio.run(maintain(thinned)) == ([], [ANOTHER])
    found, said = asyncio.run(maintain(thinned))
    assert [(each.table, upkeep) for each, upkeep in found] == [("episode_vectors_0", "rebuild")]
    assert not any("warning" in line for line in said)


LOCK = "headstart index maintenance"
ANOTHER = "another process maintains the indexes of vectors"


def test_the_daily_retention_of_the_worker_leads_to_it(
    thinned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.memory.worker.IndexUpkeep", lambda dsn: IndexUpkeep(dsn, 0, LEAST))
    embedder = GuardedEmbedder(WordEmbedder(), retry_s=0)
    watch, limits = OutboxWatch(thinned), RetentionLimits(0, 0, 0, 0)
    worker = MemoryWorker(thinned, embedder, watch, debounce_s=0, limits=limits)
    worker._maintenance._next = 0.0  # else a quarter of an hour after the start

    async def work() -> None:
        running = asyncio.create_task(worker.run())
        await until_in_loop(lambda: worker._indexes.done == 1 or running.done())
        worker.stop()
        await running

    asyncio.run(work())
    assert dead(thinned)["episode_vectors_0"] == 0
