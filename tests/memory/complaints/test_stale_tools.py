"""beads #5153: 40 % of what was remembered was stale within a day, and still suggested."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.cases.offered_tools import ToolOffer
from memory.episodes.record import Episode
from memory.retrieval.client import CaseContext, Memory
from memory.store.importing import embed_imported, import_episodes
from sinks.connections import connect_postgres
from tests.memory.finished_runs import finished_run
from tests.memory.stored_runs import WordEmbedder

pytestmark = pytest.mark.integration

TEXT = "cancel my order"
BY_ID = {"properties": {"id": {"type": "integer"}}, "required": ["id"]}
BY_NUMBER = {"properties": {"number": {"type": "string"}}, "required": ["number"]}


@pytest.fixture
def filled(migrated: str) -> str:
    """Forty runs of the tools of yesterday, and six of those of today, of three users each."""

    def runs(first: int, count: int, tools: tuple[str, ...]) -> list[Episode]:
        return [finished_run("a", first + n, TEXT, tools, user=f"u{n % 3}") for n in range(count)]

    async def steps() -> None:
        episodes = [*runs(100, 40, ("find", "drop_order")), *runs(0, 6, ("find", "cancel"))]
        async with await connect_postgres(migrated) as connection:
            await import_episodes(connection, episodes)
            await embed_imported(connection, episodes, WordEmbedder())

    asyncio.run(steps())
    return migrated


def shown(dsn: str, tools: ToolOffer | None, **fields: Any) -> CaseContext:
    with Memory(dsn, tenant="a", embedders=[WordEmbedder()], timeout_s=60) as memory:
        return memory.context(TEXT, tokens=2_000, tools=tools, **fields)


def test_cases_of_tools_that_changed_are_not_suggested(filled: str) -> None:
    without = shown(filled, None)
    assert "drop_order" in without.text
    assert without.stale == 0
    found = shown(filled, {"find": BY_ID, "cancel": BY_ID, "new": None})
    assert "drop_order" not in found.text
    assert "Case 1 (6 runs of 3 writers)" in found.text
    assert (found.shown, found.stale) == (1, 40)
    assert {tool for each in found.retrieval.episodes for tool in each.tools} == {"find", "cancel"}
    changed = shown(filled, {"find": BY_ID, "cancel": BY_NUMBER, "drop_order": BY_ID})
    assert ('"cancel"' in changed.text, "drop_order" in changed.text) == (False, True)
    assert changed.stale == 6


def test_where_all_cases_are_stale_nothing_is_suggested_and_the_reason_is_said(
    filled: str,
) -> None:
    found = shown(filled, ["search_orders"])
    assert (found.text, found.evidence, found.retrieval.episodes) == ("", (), ())
    assert found.reason == (
        "46 found runs cannot be made with the tools offered now: find is not offered"
    )
