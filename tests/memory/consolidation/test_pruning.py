"""Retention: events beyond an age or a number, and cases beyond the limit of a user."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from cli.memory.group import app
from memory.store.limits import RetentionLimits
from memory.store.maintenance import note_finished
from memory.store.pruning import AGE, CASES, NUMBER, PruneSweep, Pruning
from sinks.connections import connect_postgres
from sinks.postgres.partitions import ensure_partitions, partition_name
from sinks.postgres.queries import EventPlace, events_not_stored
from tests.memory.consolidation.repeating import (
    LIVE,
    STATES,
    assembled_again,
    consolidated,
    repeated,
    stored,
    task,
)
from tests.memory.stored_runs import event, rows, store
from tests.sinks.packed_runs import packed

pytestmark = pytest.mark.integration

EVERYTHING = RetentionLimits(0, 0, 0, 0)
PACKED = "SELECT workflow_id FROM episodes WHERE trace IS NOT NULL ORDER BY 1"


def pruned(dsn: str, limits: RetentionLimits, **options: Any) -> PruneSweep:
    """Prune, as the outlook had said."""

    async def run() -> PruneSweep:
        async with await connect_postgres(dsn) as connection:
            sweep = PruneSweep(limits, **options)
            said = await sweep.outlook(connection)
            while await sweep.step(connection):
                pass
            assert sum(each.events for each in said if each.tenant) == sweep.events
            assert sum(each.episodes for each in said if each.why == CASES) == sweep.cases
            assert await PruneSweep(limits, **options).outlook(connection) == []
            return sweep

    return asyncio.run(run())


def test_without_limits_everything_stays(migrated: str) -> None:
    stored(migrated, *repeated(3))
    before = rows(migrated, STATES)
    assert set(pruned(migrated, EVERYTHING).counts.values()) == {0}
    assert rows(migrated, STATES) == before


def test_the_newest_events_of_a_workflow_type_stay(migrated: str) -> None:
    """Two events a run: of 10 runs the newest 3 keep theirs, and all keep their episodes."""
    stored(
        migrated, *[each for n in range(10) for each in task(f"r{n}", day=n, argument=f"W{n}")],
        *task("of-other-type", workflow_type="order"), *task("of-other-tenant", "rival"),
    )  # fmt: skip
    sweep = pruned(migrated, RetentionLimits(0, 7, 0), batch=2)
    assert sweep.counts == {"days": 0, "runs": 7, "events": 14, "cases": 0}
    kept = ["of-other-tenant", "of-other-type", "r7", "r8", "r9"]
    assert rows(migrated, PACKED) == [(name,) for name in kept]
    assert len(rows(migrated, LIVE)) == 12
    assembled_again(migrated)
    assert len(rows(migrated, LIVE)) == 12
    assert asyncio.run(packed(migrated)).runs == 0


def test_verify_does_not_miss_what_retention_deleted(migrated: str) -> None:
    gone, kept = task("gone"), task("kept", day=9, query="other")
    stored(migrated, *gone, *kept)
    pruned(migrated, RetentionLimits(0, 2, 0))
    never = event("acme", "never-stored", 1)
    places = [
        EventPlace(each["id"], each["tenant"], each["timestamp"], each["workflow_id"])
        for each in (*gone, *kept, never)
    ]

    async def missing() -> list[str]:
        async with await connect_postgres(migrated) as connection:
            return await events_not_stored(connection, places)

    assert asyncio.run(missing()) == [never["id"]]

    async def note() -> None:
        async with await connect_postgres(migrated) as connection:
            await note_finished(connection, "prune", {}, datetime.now(UTC))

    asyncio.run(note())
    assert asyncio.run(missing()) == [], "older than what was dropped by day"


def test_merged_runs_go_when_their_events_are_too_old(migrated: str) -> None:
    stored(migrated, *repeated(4))
    consolidated(migrated)
    assert pruned(migrated, RetentionLimits(30, 0, 0)).counts["runs"] == 4
    assert rows(migrated, STATES) == [("run-03", "live", 1, None)]


def test_days_of_old_events_are_dropped_and_young_ones_are_not(migrated: str) -> None:
    today = datetime.now(UTC).date()

    async def run() -> None:
        async with await connect_postgres(migrated) as connection:
            await ensure_partitions(connection, today, 40, 1)
            now = round(datetime.now(UTC).timestamp() * 1000)
            await store(migrated, [
                event("acme", f"run-{n}", 0) | {"timestamp": now - n * 86_400_000}
                for n in (1, 29, 33, 39)
            ])  # fmt: skip
            for day in (today, today - timedelta(days=7)):
                with pytest.raises(psycopg.errors.RaiseException, match="too young"):
                    await connection.execute("SELECT drop_event_partition(%s)", [day])

    asyncio.run(run())
    sweep = pruned(migrated, RetentionLimits(30, 0, 0))
    assert sweep.days == 10
    names = "SELECT relname FROM pg_class WHERE relname LIKE 'episodic_events_2%' AND relkind = 'r'"
    left = {row[0] for row in rows(migrated, names)}
    assert partition_name(today - timedelta(days=30)) in left
    assert partition_name(today - timedelta(days=31)) not in left
    found = rows(migrated, "SELECT workflow_id FROM episodic_events ORDER BY 1")
    assert found == [("run-1",), ("run-29",)]


def test_rewarded_and_different_cases_of_a_user_stay(migrated: str) -> None:
    """Of six equal runs, two failed ones and two different ones five stay: each kind first."""
    stored(
        migrated, *repeated(6), *repeated(2, "failed", outcome="failure"),
        *task("different", query="Refund"), *task("other", argument="W2", query="Exchange"),
        *repeated(6, "theirs", user="u2"), *repeated(6, "nobody", user=None),
    )  # fmt: skip
    accepted = "UPDATE episodes SET usefulness = 1 WHERE workflow_id = 'run-02'"
    with psycopg.connect(migrated) as connection:
        connection.execute(accepted)
    sweep = pruned(migrated, RetentionLimits(0, 0, 5), batch=2)
    assert sweep.cases == 5 + 1
    live = {name for name, _ in rows(migrated, LIVE)}
    mine = {name for name in live if not name.startswith(("theirs", "nobody"))}
    assert {"different", "other", "run-02"} < mine
    assert len(mine) == 5
    assert len([name for name in mine if name.startswith("failed")]) == 1
    assert len([name for name in live if name.startswith("theirs")]) == 5
    assert len([name for name in live if name.startswith("nobody")]) == 6
    assert rows(migrated, "SELECT count(*) FROM episode_vectors") == [(len(live),)]
    assert len(rows(migrated, PACKED)) == 22, "their events stay"
    assert len(rows(migrated, "SELECT FROM episodes WHERE state = 'pruned'")) == 6


def test_a_case_that_changes_meanwhile_stays(migrated: str) -> None:
    """It may have been accepted since the sweep looked, and rank higher now."""
    stored(migrated, *[each for n in range(6) for each in task(f"r{n}", day=n, query=f"q{n}")])
    limits = RetentionLimits(0, 0, 1)

    async def steps() -> PruneSweep:
        async with await connect_postgres(migrated) as connection:
            sweep = PruneSweep(limits, batch=2)
            assert await sweep.step(connection)
            left = [name for name, _ in rows(migrated, LIVE)]
            assert left == ["r0", "r1", "r2", "r5"]
            await connection.execute("UPDATE episodes SET usefulness = 1 WHERE workflow_id = 'r1'")
            while await sweep.step(connection):
                pass
            return sweep

    assert asyncio.run(steps()).cases == 4
    assert rows(migrated, LIVE) == [("r1", 1), ("r5", 1)]
    assert pruned(migrated, limits, most_found=1).cases == 1
    assert rows(migrated, LIVE) == [("r1", 1)]


def test_a_sweep_that_finds_little_at_once_looks_again(migrated: str) -> None:
    stored(
        migrated, *repeated(9), *repeated(4, "theirs", user="u2"),
        *repeated(3, "rival", tenant="rival"),
    )  # fmt: skip
    consolidated(migrated)
    found = [
        pruned(migrated, RetentionLimits(30, 0, 1), batch=2, most_found=3).counts,
        pruned(migrated, RetentionLimits(30, 0, 1)).counts,
    ]
    assert found[0] == {"days": 0, "runs": 16, "events": 32, "cases": 0}
    assert found[1] == {"days": 0, "runs": 0, "events": 0, "cases": 0}
    assert len(rows(migrated, STATES)) == 3


def test_runs_without_a_user_have_a_limit_by_workflow_type(migrated: str) -> None:
    stored(
        migrated, *repeated(6, "nobody", user=None), *task("odd", user=None, outcome="failure"),
        *repeated(4, "order", user=None, workflow_type="order"),
        *repeated(5, "agent", user=None, agent_id="a1"), *repeated(5),
        *repeated(2, "rival", tenant="rival", user=None),
    )  # fmt: skip
    limits = RetentionLimits(0, 0, 0, 3)

    async def outlook() -> list[Pruning]:
        async with await connect_postgres(migrated) as connection:
            return await PruneSweep(limits).outlook(connection)

    assert asyncio.run(outlook()) == [
        Pruning("acme", "no user/order", CASES, 1, 0),
        Pruning("acme", "no user/refund", CASES, 9, 0),
    ]
    assert pruned(migrated, limits, batch=4).cases == 10
    live = [name for name, _ in rows(migrated, LIVE)]
    assert len([name for name in live if name.startswith(("run-", "rival"))]) == 5 + 2
    assert [name for name in live if name.startswith("order")] == [f"order-0{n}" for n in (1, 2, 3)]
    unnamed = [name for name in live if name.startswith(("nobody", "agent", "odd"))]
    assert len(unnamed) == 3
    assert "odd" in unnamed
    assert len(live) == 5 + 2 + 3 + 3


def test_a_pruned_case_takes_what_was_merged_into_it(migrated: str) -> None:
    stored(migrated, *repeated(4), *task("newer", query="Refund", day=20))
    consolidated(migrated)
    assert pruned(migrated, RetentionLimits(0, 0, 1)).cases == 1
    states = {name: state for name, state, *_ in rows(migrated, STATES)}
    assert states.pop("newer") == "live"
    assert set(states.values()) == {"pruned"}


def test_a_late_event_makes_a_pruned_case_live_again(migrated: str) -> None:
    stored(migrated, *task("old"), *task("new", query="Refund", day=20))
    pruned(migrated, RetentionLimits(0, 0, 1))
    assert dict(rows(migrated, LIVE)) == {"new": 1}
    stored(migrated, event("acme", "old", 9, "user_feedback", user_id="u1"))
    assert dict(rows(migrated, LIVE)) == {"new": 1, "old": 1}


def test_the_commands_say_what_would_go_and_why(migrated: str) -> None:
    stored(migrated, *repeated(4), *task("failed", outcome="failure"))

    def ran(*arguments: str) -> Any:
        ended = CliRunner().invoke(app, [*arguments, "--json", "--postgres", migrated])
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout.splitlines()[-1])

    each = {one["what"]: one["runs"] for one in ran("consolidate", "--dry-run")["runs"]}
    assert each == {"to merge": 3, "stands for others": 1, "not a full success": 1}
    assert len(rows(migrated, LIVE)) == 5
    assert ran("consolidate") == {"merged": 3, "groups": 1}
    limits = ("--days", "0", "--keep-events", "4", "--keep-cases", "1")
    said = ran("prune", "--dry-run", *limits)["prunings"]
    assert said == [
        Pruning("acme", "refund", NUMBER, 3, 6)._asdict(),
        Pruning("acme", "u1", CASES, 1, 0)._asdict()
    ]  # fmt: skip
    assert ran("prune", "--dry-run")["prunings"] == [
        Pruning("acme", "refund", AGE, 5, 10)._asdict()
    ]
    assert ran("prune", *limits) == {"days": 0, "runs": 3, "events": 6, "cases": 1}
    refused = CliRunner().invoke(app, ["prune", "--days", "3", "--postgres", migrated])
    assert refused.exit_code == 2
    tasks = rows(migrated, "SELECT task FROM memory_maintenance ORDER BY 1")
    assert tasks == [("consolidate",), ("prune",)]
