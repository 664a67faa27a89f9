"""What was deleted takes no place of what is there.

pgvector #244: dead tuples hide rows until vacuum. agentmemory #632: ghosts push out live hits.
honcho #1048: fewer results than top_k; hindsight PR 3541: a LIMIT beyond ef_search.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from memory.retrieval import search
from memory.retrieval.request import MemoryQuery
from tests.memory.complaints.neighbours import Neighbours, recall

pytestmark = pytest.mark.integration

SIZES = (1, 10, 100, 500)
LEAST_RECALL = 0.95
COLUMNS = """SELECT string_agg(attname, ', ') FROM pg_attribute
    WHERE attrelid = 'episodes'::regclass AND attnum > 0 AND attgenerated = ''
        AND NOT attisdropped"""


@pytest.fixture
def by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenant is searched by the HNSW index, as large ones are."""
    monkeypatch.setattr(search, "EXACT_ROWS", 10)


def asked(neighbours: Neighbours, text: str) -> list[MemoryQuery]:
    return [
        MemoryQuery(text=text, tenant=neighbours.large, mode="vector", k=size) for size in SIZES
    ]


@pytest.mark.usefixtures("by_index")
def test_recall_is_unchanged_after_half_is_deleted_and_before_vacuum(
    neighbours: Neighbours,
) -> None:
    every = neighbours.of(neighbours.large)
    gone, left = every[::2], every[1::2]
    texts = [each.query for each in gone[:5]]
    ids = [each.id for each in gone]
    with psycopg.connect(neighbours.dsn, autocommit=True) as owner:
        with owner.transaction():
            for table, column in (("episodes", "id"), ("episode_vectors", "episode")):
                delete = f"DELETE FROM {table} WHERE tenant = %s AND {column} = ANY (%s)"
                assert owner.execute(delete.encode(), [neighbours.large, ids]).rowcount == len(ids)
        for text in texts:
            found = neighbours.ask(*asked(neighbours, text))
            assert [len(each.episodes) for each in found] == [min(k, len(left)) for k in SIZES]
            shares = [recall(each, left, text, k) for k, each in zip(SIZES, found, strict=True)]
            assert min(shares) >= LEAST_RECALL, shares
        dead = "SELECT last_vacuum, last_autovacuum FROM pg_stat_user_tables WHERE relname = %s"
        assert owner.execute(dead.encode(), [neighbours.partition]).fetchone() == (None, None)


@contextmanager
def ghosts_of(neighbours: Neighbours, ids: list[int], state: str) -> Iterator[None]:
    """Let episodes be gone, or not live, while their vectors stay; bring them back afterwards."""
    which = [neighbours.small, ids]
    where = b"WHERE tenant = %s AND id = ANY (%s)"
    with psycopg.connect(neighbours.dsn) as owner:
        (names,) = owner.execute(COLUMNS).fetchone() or ("",)
        own = str(names).encode()
        owner.execute(b"CREATE TEMP TABLE kept AS SELECT %b FROM episodes %b" % (own, where), which)
        owner.execute(b"DELETE FROM episodes " + where, which)
        if state != "deleted":
            owner.execute("UPDATE kept SET state = %s", [state])
            owner.execute(b"INSERT INTO episodes (%b) SELECT %b FROM kept" % (own, own))
        owner.commit()
        yield
        owner.execute(b"DELETE FROM episodes " + where, which)
        owner.execute("UPDATE kept SET state = 'live'")
        owner.execute(b"INSERT INTO episodes (%b) SELECT %b FROM kept" % (own, own))


@pytest.mark.parametrize("state", ["deleted", "merged", "quarantined"])
@pytest.mark.parametrize("exact_rows", [10, 6_000])
def test_live_hits_take_the_places_of_ghosts(
    neighbours: Neighbours, state: str, exact_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vectors of episodes that are gone are still there, and are the nearest ones."""
    monkeypatch.setattr(search, "EXACT_ROWS", exact_rows)
    made = neighbours.of(neighbours.small)
    text = made[7].query
    wanted = MemoryQuery(text=text, tenant=neighbours.small, mode="vector", k=20)
    (before,) = neighbours.ask(wanted)
    ghosts = [each.id for each in before.episodes]
    with ghosts_of(neighbours, ghosts, state):
        (after,) = neighbours.ask(wanted)
    live = [each for each in made if each.id not in set(ghosts)]
    assert len(after.episodes) == 20
    assert recall(after, live, text, 20) >= LEAST_RECALL
