"""Episodes beyond the rate of their user or session are left out, and none is deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.retrieval.request import MemoryQuery
from memory.retrieval.service import RetrievalService
from memory.store.limits import UNLIMITED_WRITES, WriteLimits
from memory.store.reading import all_episodes
from memory.users.memories import list_memories
from sinks.connections import connect_postgres
from tests.memory.complaints.purging import of_user, purged
from tests.memory.consolidation.repeating import consolidated, stored
from tests.memory.quarantine.writing import (
    BEGIN,
    HOUR_MS,
    QUARANTINED,
    STATES,
    assembled,
    limited,
    rebuilt,
    swept,
    written,
)
from tests.memory.stored_runs import WordEmbedder, rows

pytestmark = pytest.mark.integration


def names(dsn: str) -> list[str]:
    return [name for name, _ in rows(dsn, QUARANTINED)]


@pytest.mark.parametrize("at_once", [7, 500])
def test_of_each_user_the_first_of_a_window_count(migrated: str, at_once: int) -> None:
    limits = limited(user=5)
    assembled(
        migrated, limits, *written("a", 8), *written("b", 5, user="u2"), *written("c", 6, hour=1),
        *written("d", 9, user=None), *written("e", 6, tenant="rival"), at_once=at_once,
    )  # fmt: skip
    beyond = ["a-005", "a-006", "a-007", "c-005", "e-005"]
    assert rows(migrated, QUARANTINED) == [(name, "user rate") for name in beyond]
    before = rows(migrated, STATES)
    sweep = swept(migrated, limits)
    assert (sweep.quarantined, sweep.released, rows(migrated, STATES)) == (0, 0, before)
    assert rebuilt(migrated, limits, at_once=3) == before


def test_of_each_session_too_whether_it_names_a_user_or_not(migrated: str) -> None:
    limits = limited(session=2)
    assembled(
        migrated, limits, *written("a", 4, session_id="s1"),
        *written("b", 2, begin=4, session_id="s2"), *written("c", 3, user=None, session_id="s1"),
    )  # fmt: skip
    assert rows(migrated, QUARANTINED) == [
        (name, "session rate") for name in ("a-002", "a-003", "c-002")
    ]
    assert rebuilt(migrated, limits) == rows(migrated, STATES)


@pytest.mark.parametrize("at_once", [3, 500])
def test_runs_that_name_neither_share_one_limit_of_their_tenant(
    migrated: str, at_once: int
) -> None:
    limits = limited(unnamed=4)
    assembled(
        migrated, limits, *written("a", 6, user=None, agent_id="one"),
        *written("b", 2, begin=6, user=None, agent_id="two"), *written("c", 5, hour=1, user=None),
        *written("d", 6), *written("e", 6, user=None, session_id="s1"),
        *written("f", 4, user=None, tenant="rival"), at_once=at_once,
    )  # fmt: skip
    beyond = ["a-004", "a-005", "b-006", "b-007", "c-004"]
    assert rows(migrated, QUARANTINED) == [(name, "unnamed rate") for name in beyond]
    before = rows(migrated, STATES)
    sweep = swept(migrated, limits)
    assert (sweep.quarantined, sweep.released, rows(migrated, STATES)) == (0, 0, before)
    assert rebuilt(migrated, limits, at_once=3) == before
    assert swept(migrated, limited(unnamed=7)).released == 4


def test_an_unnamed_run_that_moves_to_an_earlier_window_leaves_its_place(migrated: str) -> None:
    limits = limited(unnamed=1)
    assembled(migrated, limits, *written("a", 2, hour=1, user=None))
    assert names(migrated) == ["a-001"]
    earlier = written("a", 1, user=None)[0] | {"id": "0198c000-0000-7000-8000-00000000abcd"}
    assembled(migrated, limits, earlier)
    assert names(migrated) == []
    assert rebuilt(migrated, limits) == rows(migrated, STATES)


def test_a_late_run_takes_the_place_of_one_that_began_later(migrated: str) -> None:
    limits = limited(user=3)
    assembled(migrated, limits, *written("run", 3, begin=5))
    assert names(migrated) == []
    assembled(migrated, limits, *written("run", 1, begin=2))
    assert names(migrated) == ["run-007"]
    assert rebuilt(migrated, limits) == rows(migrated, STATES)


def test_without_limits_everything_counts_and_a_higher_limit_releases(migrated: str) -> None:
    assembled(migrated, UNLIMITED_WRITES, *written("run", 6))
    assert names(migrated) == []
    assert swept(migrated, limited(user=2)).quarantined == 4
    assert swept(migrated, limited(user=5)).released == 3
    assert names(migrated) == ["run-005"]
    assert swept(migrated, UNLIMITED_WRITES).released == 1
    assert names(migrated) == []


def ask(dsn: str) -> list[int]:
    """Return how many episodes each way to retrieve finds."""
    text, context = "Cancel order", {"domain": "retail", "complexity": "low"}
    modes: list[dict[str, Any]] = [
        {"mode": "vector"}, {"mode": "lexical"}, {"mode": "hybrid"}, {"mode": "exact"},
        {"mode": "exact", "text": "", "context": {}, "keys": (), "workflow_type": "refund"},
        {"mode": "fuzzy", "context": context},
    ]  # fmt: skip

    async def run() -> list[int]:
        async with RetrievalService(dsn, [WordEmbedder()], timeout_s=60) as service:
            found = [
                await service.search(
                    MemoryQuery(**{"text": text, "tenant": "acme", "k": 500, **mode})
                )
                for mode in modes
            ]
        return [len(each.episodes) for each in found]

    return asyncio.run(run())


def test_what_is_quarantined_is_found_by_nothing_and_still_its_users(migrated: str) -> None:
    limits = limited(user=5)
    assembled(migrated, limits, *written("run", 12))
    assert ask(migrated) == [5] * 6
    vectors = "SELECT count(*) FROM episode_vectors"
    assert rows(migrated, vectors) == [(5,)], "no vector of one that does not count"

    async def read() -> tuple[int, int, int]:
        async with await connect_postgres(migrated) as connection:
            listed = await list_memories(connection, "acme", "u1")
            exported = [each async for some in all_episodes(connection) for each in some]
            cases = [e async for some in all_episodes(connection, quarantined=False) for e in some]
        assert {each.state for each in listed} == {"live", "quarantined"}
        assert all(each.query for each in exported)
        return len(listed), len(exported), len(cases)

    assert asyncio.run(read()) == (12, 12, 5)
    counts = purged(migrated, of_user())
    assert counts["episodes"] == 12
    assert rows(migrated, "SELECT count(*) FROM episodes") == [(0,)]


def test_what_becomes_quarantined_takes_its_vector_with_it(migrated: str) -> None:
    assembled(migrated, UNLIMITED_WRITES, *written("run", 4))
    swept(migrated, limited(user=1))
    assert rows(migrated, "SELECT count(*) FROM episode_vectors") == [(1,)]
    assert ask(migrated)[0] == 1


def test_runs_that_a_quarantined_one_stood_for_stand_for_themselves(migrated: str) -> None:
    """The newest of merged runs is the first to be beyond a limit that is lowered."""
    stored(migrated, *written("run", 5))
    assert consolidated(migrated).merged == 4
    limits = limited(user=2)
    swept(migrated, limits)
    assert names(migrated) == ["run-004"]
    assembled(migrated, limits)
    assert names(migrated) == ["run-002", "run-003", "run-004"]
    live = "SELECT workflow_id, support FROM episodes WHERE state = 'live' ORDER BY 1"
    assert rows(migrated, live) == [("run-000", 1), ("run-001", 1)]


def test_windows_are_as_long_as_the_setting_says(migrated: str) -> None:
    two = WriteLimits(3, 0, 2 * 3_600, 0.0)
    hour = 0 if BEGIN % (2 * HOUR_MS) == 0 else 1
    assembled(migrated, two, *written("a", 2, hour=hour), *written("b", 2, hour=hour + 1))
    assert names(migrated) == ["b-001"]
    assert swept(migrated, two._replace(window_s=3_600)).released == 1
