"""Insights of merged runs: each text is kept, and counted where the runs are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from memory.retrieval.client import Memory
from memory.retrieval.result import FoundEpisode
from memory.store.reading import find_episodes
from sinks.connections import connect_postgres
from tests.memory.complaints.purging import purged
from tests.memory.consolidation.repeating import LIVE, Event, consolidated, stored, task
from tests.memory.stored_runs import rows
from topics.control.messages import Purge

pytestmark = pytest.mark.integration

NOW = 1_900_000_000_000


def told(name: str, *insights: str, day: float = 0, **fields: Any) -> list[Event]:
    """Return a run that gives insights."""
    events = task(name, day=day, **fields)
    events[-1]["data"]["insights"] = list(insights)
    return events


def found(dsn: str) -> FoundEpisode:
    with Memory(dsn, tenant="acme", embedders=(), journal=False) as memory:
        (episode,) = memory.search("cancel order", mode="exact").episodes
    return episode


def counted(dsn: str) -> dict[str, int]:
    episode = found(dsn)
    return dict(zip(episode.insights, episode.insight_runs, strict=True))


async def own(dsn: str, name: str) -> Sequence[str]:
    async with await connect_postgres(dsn) as connection:
        (episode,) = await find_episodes(connection, "acme", name)
    return episode.insights


def test_runs_that_differ_in_insights_are_merged_and_all_texts_are_counted(migrated: str) -> None:
    stored(
        migrated, *told("run-0", "ask first"), *told("run-1", "be brief", "ask first", day=1),
        *told("run-2", day=2), *told("run-3", "be brief", day=3), *told("run-4", "be kind", day=4),
        *told("run-5", "ask first", day=5),
    )  # fmt: skip
    assert consolidated(migrated).merged == 5
    assert rows(migrated, LIVE) == [("run-5", 6)]
    assert counted(migrated) == {"ask first": 3, "be brief": 2, "be kind": 1}
    assert found(migrated).insights == ["ask first", "be brief", "be kind"]
    assert found(migrated).as_json()["insight_runs"] == [3, 2, 1]
    assert asyncio.run(own(migrated, "run-4")) == ("be kind",)
    assert asyncio.run(own(migrated, "run-2")) == ()


def test_a_single_run_has_its_own_insights(migrated: str) -> None:
    stored(migrated, *told("run-0", "be brief", "ask first"))
    assert (found(migrated).insights, list(found(migrated).insight_runs)) == (
        ["be brief", "ask first"], [1, 1],
    )  # fmt: skip
    stored(migrated, *told("run-1", query="Another order"))
    assert counted(migrated) == {"be brief": 1, "ask first": 1}


def test_at_most_twenty_texts_are_shown_the_most_frequent_first(migrated: str) -> None:
    often = [told(f"often-{n}", "often", day=n) for n in range(2)]
    many = [told(f"run-{n:02}", f"insight {n:02}", day=n + 2) for n in range(24)]
    stored(migrated, *(event for each in (*often, *many) for event in each))
    assert consolidated(migrated).merged == 25
    insights = found(migrated).insights
    assert (len(insights), insights[:2]) == (20, ["often", "insight 00"])


def test_what_is_purged_is_counted_no_more(migrated: str) -> None:
    stored(
        migrated, *told("run-0", "secret", session_id="s1"),
        *told("run-1", "plain", day=1, session_id="s2"),
        *told("run-2", "plain", day=2, session_id="s3"),
    )  # fmt: skip
    assert consolidated(migrated).merged == 2
    assert counted(migrated) == {"plain": 2, "secret": 1}
    purged(migrated, Purge("p", NOW, "acme", session_id="s1"))
    assert counted(migrated) == {"plain": 2}
    assert rows(migrated, "SELECT count(*) FROM episodes WHERE 'secret' = ANY (insights)") == [(0,)]
