"""Consolidation of encrypted runs: merged only if their texts are equal, and read back rightly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.episodes.record import Episode
from memory.store.limits import RetentionLimits
from memory.store.merging import consolidation_outlook
from memory.store.pruning import PruneSweep
from memory.store.reading import all_episodes
from sinks.connections import connect_postgres
from sinks.postgres.encryption.administration import clear_next, shred
from tests.memory.complaints.purging import found_in
from tests.memory.consolidation.repeating import (
    LIVE,
    STATES,
    assembled_again,
    consolidated,
    seen_by_user,
    stored,
    task,
)
from tests.memory.stored_runs import rows
from tests.sinks.encryption.keys import OLD, give

pytestmark = pytest.mark.integration

CANARY = "canary-77b2"


def runs(count: int, prefix: str = "run", **fields: Any) -> list[dict[str, Any]]:
    """Return runs of which query, arguments and response are equal, a day apart."""
    events = [
        each for n in range(count) for each in task(f"{prefix}-{n:02}", day=n, **fields)
    ]  # fmt: skip
    for each in events:
        if "response" in each["data"]:
            each["data"]["response"] = f"done: {CANARY}"
    return events


@pytest.fixture
def sealed(migrated: str, monkeypatch: pytest.MonkeyPatch) -> str:
    give(monkeypatch, OLD)
    stored(
        migrated, *runs(3, query=CANARY), *runs(1, "argument", query=CANARY, argument="W2"),
        *runs(1, "asked", query=f"{CANARY} too"), *runs(2, "rival", tenant="rival", query=CANARY),
        *task("said", query=CANARY, day=5),
    )  # fmt: skip
    return migrated


async def exported(dsn: str, tenant: str = "acme") -> dict[str, Episode]:
    async with await connect_postgres(dsn) as connection:
        found = [each async for some in all_episodes(connection, tenant) for each in some]
    return {each.workflow_id: each for each in found}


def test_only_runs_of_equal_texts_are_merged(sealed: str) -> None:
    before, shown = asyncio.run(exported(sealed)), asyncio.run(seen_by_user(sealed))

    async def outlook() -> dict[str, int]:
        async with await connect_postgres(sealed) as connection:
            found = await consolidation_outlook(connection, "acme")
        return {each.what: each.runs for each in found}

    assert asyncio.run(outlook()) == {"the only one": 3, "to merge": 2, "stands for others": 1}
    assert consolidated(sealed).merged == 3
    assert rows(sealed, LIVE) == [
        ("argument-00", 1), ("asked-00", 1), ("rival-01", 2), ("run-02", 3), ("said", 1),
    ]  # fmt: skip
    bare = "SELECT count(*) FROM episodes WHERE state = 'merged' AND sealed IS NULL"
    assert rows(sealed, bare) == [(3,)]
    assert found_in(sealed, CANARY) == []
    after = asyncio.run(exported(sealed))
    lost = {"run-00", "run-01"}
    assert after == {
        name: each._replace(response=None) if name in lost else each
        for name, each in before.items()
    }
    assert asyncio.run(seen_by_user(sealed)) == shown


def test_a_merged_run_is_assembled_again_from_encrypted_events(sealed: str) -> None:
    before = asyncio.run(exported(sealed))
    consolidated(sealed)
    assembled_again(sealed)
    assert {state for _, state, *_ in rows(sealed, STATES)} == {"live"}
    assert asyncio.run(exported(sealed)) == before


def test_shredding_ends_the_texts_of_merged_runs(sealed: str) -> None:
    consolidated(sealed)

    async def end(*, clear: bool) -> None:
        async with await connect_postgres(sealed) as connection:
            await shred(connection, "acme")
            while clear and await clear_next(connection, "acme"):
                pass

    for step in (lambda: end(clear=False), lambda: end(clear=True)):
        asyncio.run(step())
        found = asyncio.run(exported(sealed))
        assert len(found) == 6
        assert {(each.query, each.calls) for each in found.values()} == {(None, ())}
    assembled_again(sealed)
    assert {each.query for each in asyncio.run(exported(sealed)).values()} == {None}
    assert {each.query for each in asyncio.run(exported(sealed, "rival")).values()} == {CANARY}


def test_pruned_cases_have_no_encrypted_text(sealed: str) -> None:
    async def prune() -> int:
        sweep = PruneSweep(RetentionLimits(days=0, events=0, cases=1), "acme")
        async with await connect_postgres(sealed) as connection:
            while await sweep.step(connection):
                pass
        return sweep.cases

    assert asyncio.run(prune()) == 5
    pruned = "SELECT sealed IS NULL, count(*) FROM episodes WHERE state = 'pruned' GROUP BY 1"
    assert rows(sealed, pruned) == [(True, 5)]
