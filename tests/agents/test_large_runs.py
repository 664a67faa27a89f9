"""A run of very many events does not keep the memory worker from the other runs."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from agents.memory import assembling
from agents.memory.assembling import RunsRefused, assemble_next
from agents.memory.large_runs import LARGE, LONGEST_S, LargeRuns
from memory.episodes.assembly import assemble
from memory.episodes.run_event import run_event
from memory.store.outbox import drop_runs, outbox_lag
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import event, rows, run, store

pytestmark = pytest.mark.integration

MANY = run("a", "many", steps=LARGE)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def late(number: int) -> list[Any]:
    """One more event of the large run."""
    return [event("a", "many", LARGE + number, "task_complete")]


def counted(dsn: str) -> dict[str, int]:
    return dict(rows(dsn, "SELECT workflow_id, events FROM episodes"))


def test_a_large_run_is_assembled_again_after_others_had_time(migrated: str) -> None:
    clock = Clock()
    large = LargeRuns(clock)

    async def steps() -> None:
        await store(migrated, MANY)
        async with target_at(migrated) as target:
            assert (await assemble_next(target, 500, 0, large)).rows == 1
            await store(migrated, late(1), run("a", "small"), late(2))
            lag = await outbox_lag(target.connection, large.postponed())
            assert (lag.rows, (await outbox_lag(target.connection)).rows) == (1, 3)
            assert (await assemble_next(target, 500, 0, large)).rows == 1
            assert (await assemble_next(target, 500, 0, large)).rows == 0
            assert counted(migrated) == {"many": LARGE + 1, "small": 4}
            clock.now = LONGEST_S
            assert (await assemble_next(target, 500, 0, large)).rows == 2

    asyncio.run(steps())
    assert counted(migrated)["many"] == LARGE + 3
    assert rows(migrated, "SELECT FROM episode_outbox") == []


def test_a_large_run_that_is_refused_is_the_one_left_out(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise psycopg.DataError("refused")

    monkeypatch.setattr(assembling, "store_episodes", refuse)
    large = LargeRuns(Clock())

    async def steps() -> None:
        await store(migrated, MANY, run("a", "small"))
        async with target_at(migrated) as target:
            with pytest.raises(RunsRefused) as refused:
                await assemble_next(target, 1, 0, large)
            assert [run.workflow_id for run in refused.value.runs] == ["many"]
            assert large.postponed() == []
            await drop_runs(target.connection, refused.value.runs)

    asyncio.run(steps())
    assert rows(migrated, "SELECT workflow_id FROM episode_outbox") == [("small",)]


def test_the_wait_grows_with_the_events_up_to_a_bound() -> None:
    clock = Clock()
    large = LargeRuns(clock)
    made = assemble("a", "refund", "small", [run_event(each) for each in run("a", "small")])
    for events in (LARGE - 1, LARGE, 10 * LARGE, 1_000 * LARGE):
        large.note([made._replace(workflow_id=str(events), events=events)])
    ended = []
    for clock.now in (0.0, 4.9, 5.1, LONGEST_S - 0.1, LONGEST_S + 0.1):
        ended.append([run.workflow_id for run in large.postponed()])
    most = [str(10 * LARGE), str(1_000 * LARGE)]
    assert ended == [[str(LARGE), *most]] * 2 + [most] * 2 + [[]]
