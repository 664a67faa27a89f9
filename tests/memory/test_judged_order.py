"""Judgements move a case in retrieval where no ranking policy is active."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from memory.retrieval.client import Memory
from memory.retrieval.fusion import judged
from tests.memory.consolidation.repeating import stored, task
from tests.memory.stored_runs import WordEmbedder

MODES = ("exact", "lexical", "vector", "hybrid")


def names(dsn: str, mode: str, **fields: Any) -> list[str]:
    embedder = WordEmbedder()
    with Memory(dsn, tenant="acme", embedders=[embedder], journal=False, timeout_s=60) as memory:
        found = memory.search("Cancel order", mode=mode, **fields)
    assert found.degraded == ()
    assert [each.score for each in found.episodes] == sorted(
        (each.score for each in found.episodes), reverse=True
    )
    return [each.workflow_id for each in found.episodes]


def judge(dsn: str, **usefulness: float) -> None:
    with psycopg.connect(dsn) as connection:
        for name, value in usefulness.items():
            connection.execute(
                "UPDATE episodes SET usefulness = %s WHERE workflow_id = %s", [value, name]
            )


def test_a_judgement_changes_a_score_by_a_fifth_at_most() -> None:
    assert (judged(0.5, 0), judged(0.5, 1), judged(0.5, -1)) == (0.5, 0.6, 0.4)
    assert judged(-0.1, 1) == -0.1, "a score below 0 must not fall when it is accepted"


@pytest.mark.integration
def test_accepted_cases_come_first_and_rejected_ones_last_in_every_mode(migrated: str) -> None:
    stored(migrated, *(event for n in range(12) for event in task(f"run{n:02}", day=n)))
    plain = {mode: names(migrated, mode, k=12) for mode in MODES}
    for mode, order in plain.items():
        good, bad = order[-1], order[0]
        judge(migrated, **{good: 1.0, bad: -1.0})
        now = names(migrated, mode, k=12)
        assert (now[0], now[-1]) == (good, bad), mode
        assert now[1:-1] == order[1:-1], f"{mode}: the others keep their order"
        assert names(migrated, mode, k=3) == now[:3], f"{mode}: candidates beyond k are judged, too"
        judge(migrated, **{good: 0.0, bad: 0.0})
        assert names(migrated, mode, k=12) == order


@pytest.mark.integration
def test_a_case_that_is_much_more_alike_stays_before_an_accepted_one(migrated: str) -> None:
    stored(
        migrated, *task("alike"), *task("other", query="Cancel the plan of a train to Bern", day=1)
    )
    judge(migrated, other=1.0)
    assert names(migrated, "vector")[0] == "alike"
