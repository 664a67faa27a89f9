"""Consolidation of repeated runs: what is merged, what stays, and what undoes it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import psycopg
import pytest

from memory.retrieval.client import Memory
from memory.store import merging
from memory.store.merging import Merge, RoutineRun, merges_of
from memory.store.reading import all_episodes, find_episodes, memory_stats
from sinks.connections import connect_postgres
from tests.memory.complaints.purging import of_user, purged
from tests.memory.consolidation.repeating import (
    CONTENT,
    LIVE,
    STATES,
    UNEVEN,
    assembled,
    assembled_again,
    consolidated,
    repeated,
    seen_by_user,
    stored,
    task,
)
from tests.memory.stored_runs import event, rows, store

pytestmark = pytest.mark.integration

VECTORS = "SELECT count(*) FROM episode_vectors"


def late(dsn: str, *events: dict[str, Any]) -> None:
    async def run() -> None:
        await store(dsn, events)
        await assembled(dsn)

    asyncio.run(run())


def found(dsn: str, **fields: Any) -> dict[str, int]:
    """Return the support of the runs that an equal query finds, by workflow id."""
    with Memory(dsn, tenant="acme", embedders=(), journal=False) as memory:
        episodes = memory.search("cancel ORDER", mode="exact", k=100, **fields).episodes
    return {each.workflow_id: each.support for each in episodes}


def test_equal_runs_are_one_case_with_a_count(migrated: str) -> None:
    """zeph #2717, hindsight #3249, MemMachine #1244: a case and a count, not duplicates."""
    stored(migrated, *repeated(30), *repeated(3, "other", user="u2"), *task("single", "rival"))
    assert len(found(migrated)) == 33
    sweep = consolidated(migrated)
    assert (sweep.merged, sweep.groups) == (29 + 2, 2)
    assert rows(migrated, LIVE) == [("other-02", 3), ("run-29", 30), ("single", 1)]
    assert found(migrated) == {"other-02": 3, "run-29": 30}
    assert rows(migrated, VECTORS) == [(3,)]
    assert consolidated(migrated).merged == 0
    stored(migrated, *task("run-30", day=30), *task("run-aa", day=0.5))
    assert consolidated(migrated).merged == 2
    assert rows(migrated, LIVE) == [("other-02", 3), ("run-30", 32), ("single", 1)]


def test_what_is_not_routine_or_not_equal_stays(migrated: str) -> None:
    stored(
        migrated, *repeated(2), *repeated(2, "failed", outcome="failure"),
        *repeated(2, "partial", outcome="partial"), *repeated(2, "surprise", confidence=0.2),
        *repeated(2, "nobody", user=None), *task("elsewhere", workflow_type="order"),
        *task("spelt", query="CANCEL  order", day=3), *task("of-w2", argument="W2"),
        *task("asked", query="Cancel orders"), *task("agent", agent_id="a1"),
        *repeated(2, "session", user=None, session_id="s1"),
    )  # fmt: skip
    assert consolidated(migrated).merged == 3
    merged = [name for name, state, *_ in rows(migrated, STATES) if state == "merged"]
    assert merged == ["run-00", "run-01", "session-00"]

    async def outlook() -> dict[str, int]:
        async with await connect_postgres(migrated) as connection:
            each = await merging.consolidation_outlook(connection, "acme")
        return {one.what: one.runs for one in each if one.workflow_type == "refund"}

    assert asyncio.run(outlook()) == {
        "not a full success": 4, "a surprise": 2, "of no named writer": 2, "merged": 3,
        "the only one": 5,
    }  # fmt: skip


def test_the_outlook_is_what_happens(migrated: str) -> None:
    stored(migrated, *repeated(4), *repeated(3, "b", user="u2"), *task("c", outcome="failure"))

    async def outlook() -> int:
        async with await connect_postgres(migrated) as connection:
            each = await merging.consolidation_outlook(connection)
        return sum(one.runs for one in each if one.what == "to merge")

    expected = asyncio.run(outlook())
    assert consolidated(migrated).merged == expected == 5
    assert asyncio.run(outlook()) == 0


def test_runs_of_the_last_day_and_runs_that_are_not_packed_stay(migrated: str) -> None:
    asyncio.run(store(migrated, repeated(3)))
    asyncio.run(assembled(migrated))
    assert consolidated(migrated).merged == 0
    stored(migrated)
    assert consolidated(migrated, least_age_s=10 * 365 * 86_400).merged == 0
    assert consolidated(migrated).merged == 2


def test_statistics_and_exports_have_all_runs(migrated: str) -> None:
    stored(migrated, *repeated(5), *task("failed", outcome="failure"))

    async def read() -> tuple[dict[str, Any], list[tuple[Any, ...]], list[str | None]]:
        async with await connect_postgres(migrated) as connection:
            stats = await memory_stats(connection, "acme")
            lists = [each async for each in all_episodes(connection, "acme")]
            shown = await find_episodes(connection, "acme", "run-00")
        kept = [(e.id, e.query, e.calls, e.outcome, e.ended) for some in lists for e in some]
        return stats, kept, [each.query for each in shown]

    before, episodes, shown = asyncio.run(read())
    assert consolidated(migrated).merged == 4
    stats, now, shown_now = asyncio.run(read())
    assert (now, shown_now) == (episodes, shown)
    assert (before.pop("merged"), stats.pop("merged")) == (0, 4)
    for each in (before, stats):
        del each["bytes"], each["models"]
    assert stats == before


def test_a_user_is_shown_what_merged_runs_were_about(migrated: str) -> None:
    stored(migrated, *repeated(4), *task("failed", outcome="failure"))
    before = asyncio.run(seen_by_user(migrated))
    assert len(before) == 5
    assert all(all(each) for each in before)
    assert consolidated(migrated).merged == 3
    assert asyncio.run(seen_by_user(migrated)) == before


@pytest.mark.parametrize("which", ["run-00", "run-03"])
def test_a_late_event_gives_what_it_gives_without_consolidation(migrated: str, which: str) -> None:
    """Of a merged run, and of the one that stands for the others; both then count apart."""
    stored(migrated, *repeated(4))
    assert consolidated(migrated).merged == 3
    complaint = event("acme", which, 9, "user_feedback", user_id="u1", data={"accepted": False})
    late(migrated, complaint)
    if which == "run-03":  # what it stood for waited in the outbox
        asyncio.run(assembled(migrated))
    assert rows(migrated, UNEVEN) == []
    live = dict(rows(migrated, LIVE))
    assert live == (
        {"run-00": 1, "run-03": 3} if which == "run-00" else dict.fromkeys(sorted(live), 1)
    )
    consolidated(migrated)
    after = rows(migrated, CONTENT)
    with psycopg.connect(migrated) as connection:
        connection.execute("TRUNCATE episodes, episodic_events, episode_vectors")
    stored(migrated, *repeated(4), complaint)
    consolidated(migrated)
    assert rows(migrated, CONTENT) == after


def test_a_rebuild_gives_the_same_after_consolidating_again(migrated: str) -> None:
    stored(migrated, *repeated(6), *repeated(3, "b", user="u2"), *task("c", outcome="failure"))
    whole = rows(migrated, CONTENT)
    consolidated(migrated)
    merged = rows(migrated, CONTENT)
    assembled_again(migrated)
    assert rows(migrated, CONTENT) == whole
    assert rows(migrated, VECTORS) == [(10,)]
    consolidated(migrated, most_runs=2)
    assert rows(migrated, CONTENT) == merged


def test_recall_never_falls_while_it_consolidates(migrated: str) -> None:
    """muninndb #779: after each transaction the runs that are found stand for all."""
    stored(migrated, *repeated(9), *repeated(4, "b", user="u2"))
    seen = []

    async def step() -> None:
        sweep = merging.ConsolidationSweep(most_runs=3)
        async with await connect_postgres(migrated) as connection:
            while await sweep.step(connection):
                seen.append(await asyncio.to_thread(found, migrated))

    asyncio.run(step())
    assert [sum(each.values()) for each in seen] == [13] * len(seen)
    assert len(seen) > 3
    assert seen[-1] == {"run-08": 9, "b-03": 4}


def test_an_interrupted_step_has_changed_nothing(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(migrated, *repeated(4))
    before = rows(migrated, CONTENT)

    async def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(merging, "drop_vectors", killed)  # the last statement of the transaction
        with pytest.raises(KeyboardInterrupt):
            consolidated(migrated)
    assert rows(migrated, CONTENT) == before
    assert consolidated(migrated).merged == 3


def test_a_purge_takes_the_counts_with_it(migrated: str) -> None:
    stored(
        migrated, *repeated(3, session_id="s1"), *repeated(3, "more", 9, session_id="s2"),
        *repeated(2, "theirs", user="u2"),
    )  # fmt: skip
    assert consolidated(migrated).merged == 6
    assert dict(rows(migrated, LIVE)) == {"more-02": 6, "theirs-01": 2}
    purged(migrated, of_user(user_id=None, workflow_id="run-01", at=2**42))
    assert dict(rows(migrated, LIVE)) == {"more-02": 5, "theirs-01": 2}
    purged(migrated, of_user(user_id=None, session_id="s2", at=2**42 + 1))
    asyncio.run(assembled(migrated))
    assert rows(migrated, UNEVEN) == []
    assert dict(rows(migrated, LIVE)) == {"run-00": 1, "run-02": 1, "theirs-01": 2}
    assert found(migrated) == {"run-00": 1, "run-02": 1, "theirs-01": 2}
    consolidated(migrated)
    purged(migrated, of_user(at=2**42 + 2))
    asyncio.run(assembled(migrated))
    assert {name for name, *_ in rows(migrated, STATES)} == {"theirs-00", "theirs-01"}


def test_support_is_right_after_any_order_of_operations(migrated: str) -> None:
    draw = random.Random(39)
    stored(migrated, *repeated(5), *repeated(4, "b", user="u2", session_id="s1"))
    names = [f"run-{n:02}" for n in range(5)] + [f"b-{n:02}" for n in range(4)]
    for number in range(16):
        what = draw.choice(("consolidate", "late", "late", "again", "new", "pack"))
        name = draw.choice(names)
        user = "u1" if name.startswith("run") else "u2"
        if what == "consolidate":
            consolidated(migrated)
        elif what == "late":
            late(migrated, event("acme", name, 20 + number, "user_feedback", user_id=user))
        elif what == "again":
            assembled_again(migrated)
        elif what == "new":
            stored(migrated, *task(f"run-{number + 10}", day=number))
        else:
            stored(migrated)
        asyncio.run(assembled(migrated))
        assert rows(migrated, UNEVEN) == [], (number, what)


def test_the_newest_of_each_kind_stands_for_its_runs() -> None:
    runs = [
        RoutineRun(5, 1, 2, ("a",)), RoutineRun(4, 1, 1, ("b",)), RoutineRun(3, 1, 3, ("a",)),
        RoutineRun(2, 2, 1, ("a",)), RoutineRun(1, 1, 1, ("a",)),
    ]  # fmt: skip
    assert merges_of(runs) == [Merge(5, 6, (3, 1))]
