"""When a worker appends a clock record to a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agents.environment import Clocks
from agents.thresholds import clock_records
from agents.thresholds.clock_records import send_clock_records
from agents.thresholds.sound_clock import AHEAD_MS, FAST_MS, ClockSchedule, SoundClock
from processing.state.clock import TICK_MS, PartitionClock
from processing.state.rows import TaskStateRow

NOW = 1_760_000_100_000
"""A whole tick."""


def core(clock: int | None = NOW) -> Any:
    row = TaskStateRow() if clock is None else TaskStateRow(clock, began=clock)
    return SimpleNamespace(clock=PartitionClock(row), partition=0)


def schedule(at: int = NOW) -> ClockSchedule:
    """Return one that spoke then."""
    witness = ClockSchedule()
    witness.sent(at)
    return witness


@pytest.mark.parametrize(
    ("witness", "what", "now", "due"),
    [
        (ClockSchedule, core(None), NOW, True),
        (ClockSchedule, core(), NOW + TICK_MS, True),
        (ClockSchedule, core(), NOW + TICK_MS - 1, False),
        (schedule, core(), NOW + TICK_MS, True),
        (lambda: schedule(NOW + TICK_MS - 1), core(), NOW + TICK_MS, True),
        (lambda: schedule(NOW + TICK_MS), core(), NOW + 2 * TICK_MS - 1, False),
        (schedule, core(None), NOW + TICK_MS - 1, False),
        (schedule, core(), NOW - TICK_MS, False),
        (lambda: schedule(NOW + 9 * TICK_MS), core(), NOW + TICK_MS, True),
    ],
    ids=[
        "the first thing", "of one taken over", "another one has just sent it", "as a tick begins",
        "wherever in it the last was", "not twice in a tick", "nor before the first is received",
        "not by a clock that is slow", "by one that was set back to what is right",
    ],
)  # fmt: skip
def test_one_clock_record_is_sent_a_tick(
    witness: Callable[[], ClockSchedule], what: Any, now: int, due: bool
) -> None:
    assert witness().due(what, now) == due


@pytest.mark.parametrize("phase", [1, 150_000, TICK_MS - 1])
def test_a_partitions_clock_lags_by_no_more_than_a_look(phase: int) -> None:
    """Whenever the worker began: what arrives in a lag has no time of its own."""
    witness, what, now = ClockSchedule(), core(None), NOW + phase
    for look in range(200):
        if witness.due(what, now):
            what.clock.apply(now)
            witness.sent(now)
        assert now - what.clock.row.clock < TICK_MS, look
        now += 10_000


def test_a_clock_that_is_ahead_of_the_workers_is_warned_of_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    witness = ClockSchedule()
    for ahead in (AHEAD_MS, AHEAD_MS + 1, AHEAD_MS + 1):
        assert not witness.due(core(NOW + ahead), NOW)
    assert capsys.readouterr().out.count("clock.partition_ahead") == 1


class Other:
    """Redis' clock; None: Redis is away."""

    def __init__(self, now: int | None) -> None:
        self.now = now

    async def ask(self) -> int:
        if self.now is None:
            raise ConnectionError("away")
        return self.now


def test_a_fast_clock_sends_nothing_and_is_logged_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = Other(NOW)
    sound = SoundClock(other.ask)
    assert asyncio.run(sound.is_sound(NOW + FAST_MS))
    for ahead in (FAST_MS + 60_000, 10 * 365 * 86_400_000):
        assert not asyncio.run(sound.is_sound(NOW + ahead))
    assert asyncio.run(sound.is_sound(NOW - 10 * TICK_MS)), "one that is slow expires nothing early"
    out = capsys.readouterr().out
    assert out.count("clock.not_trusted") == 1
    assert "6 minutes ahead of Redis'" in out
    assert "NTP" in out


def test_while_redis_is_away_its_last_time_counts() -> None:
    passed = [1_000.0]
    other = Other(None)
    sound = SoundClock(other.ask, lambda: passed[0])
    assert asyncio.run(sound.is_sound(NOW + 365 * 86_400_000)), "nothing to hold it against"
    other.now = NOW
    assert asyncio.run(sound.is_sound(NOW))
    other.now = None
    passed[0] += 7_200.0
    assert asyncio.run(sound.is_sound(NOW + 7_200_000 + FAST_MS))
    assert not asyncio.run(sound.is_sound(NOW + 7_200_000 + FAST_MS + 1))


def test_a_time_that_would_be_refused_is_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """A host without a battery for its clock wakes up in 1970."""
    sound = SoundClock(Other(NOW).ask)
    for now in (0, 300_000, 946_684_799_999):
        assert not asyncio.run(sound.is_sound(now))
    assert capsys.readouterr().out.count("before the year 2000") == 1


class Targets:
    """Takes what is sent to some partitions, and never answers the rest."""

    def __init__(self, silent: set[int]) -> None:
        self.silent, self.begun = silent, set[int]()

    def current(self) -> bool:
        return True

    async def send_control(self, _control: Any, partitions: list[int]) -> bool:
        self.begun.update(partitions)
        if self.silent.intersection(partitions):
            await asyncio.Event().wait()
        return True


def test_clock_records_are_sent_together_and_delay_no_rebalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock_records, "TIMEOUT_S", 0.05)
    targets = Targets(silent={0, 2})
    owned: Any = [
        SimpleNamespace(
            partition=place, core=core(None), clock_schedule=ClockSchedule(), targets=targets
        )
        for place in range(4)
    ]
    asyncio.run(send_clock_records(owned, Clocks(lambda: NOW), SoundClock(Other(NOW).ask)))
    assert targets.begun == {0, 1, 2, 3}
    assert [each.clock_schedule.due(each.core, NOW) for each in owned] == [True, False, True, False]
