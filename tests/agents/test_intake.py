"""The intake and the sweeper against a consumer that only remembers where it was sent."""

from __future__ import annotations

import asyncio
from typing import Any

from faust.types import TP

from agents import sweeper
from agents.intake import Intake
from processing.records import RecordBatch

AT, OTHER = TP("source", 0), TP("source", 1)
GENERATION = 3


class Consumer:
    """Stands for Faust's: these faults cannot be had from a broker at will."""

    def __init__(self, earliest: int = 0, ends: dict[TP, int] | None = None) -> None:
        self.sought: list[dict[TP, int]] = []
        self._earliest, self._ends = earliest, ends or {}

    async def earliest_offsets(self, *tps: TP) -> dict[TP, int]:
        return dict.fromkeys(tps, self._earliest)

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        return {tp: self._ends[tp] for tp in tps}

    async def seek_wait(self, positions: dict[TP, int]) -> None:
        self.sought.append(dict(positions))


class App:
    """As much of an app as the intake and the sweeper look at."""

    consumer_generation_id = GENERATION
    should_stop = False
    rebalancing = False

    def __init__(self, consumer: Consumer, idle: dict[TP, int] | None = None) -> None:
        self.consumer, self.runtime = consumer, self
        self._idle, self._rounds = idle or {}, 0

    def idle(self) -> dict[TP, int]:
        return dict(self._idle)

    async def sleep(self, _seconds: float) -> None:
        self._rounds += 1
        self.should_stop = self._rounds == 3


def batch(begin: int, end: int, *offsets: int) -> RecordBatch:
    places = list(offsets or range(begin, end))
    nothing: list[bytes | None] = [None] * len(places)
    return RecordBatch("source", 0, begin, end, places, places[:], nothing, nothing[:])


def admit(
    consumer: Consumer, *fetched: RecordBatch, generation: int = GENERATION, real: bool = True
) -> list[bool]:
    intake = Intake(App(consumer), "g", {AT: 10}, holes_are_real=real)

    async def all_of_them() -> list[bool]:
        return [await intake.admit(AT, generation, each) for each in fetched]

    return asyncio.run(all_of_them())


def test_the_next_batch_is_taken_and_an_old_one_dropped() -> None:
    consumer = Consumer()
    assert admit(consumer, batch(10, 20), batch(10, 20), batch(20, 21)) == [True, False, True]
    assert consumer.sought == []


def test_a_gap_is_fetched_again_from_where_it_begins() -> None:
    consumer = Consumer()
    assert admit(consumer, batch(15, 20), batch(10, 20)) == [False, True]
    assert consumer.sought == [{AT: 10}]


def test_what_the_broker_no_longer_has_is_passed_over() -> None:
    consumer = Consumer(earliest=15)
    assert admit(consumer, batch(15, 20)) == [True]
    assert consumer.sought == []


def test_a_doubtful_hole_is_fetched_again() -> None:
    consumer = Consumer()
    assert admit(consumer, batch(10, 20, 10, 19), batch(10, 20), real=False) == [False, True]
    assert consumer.sought == [{AT: 10}]


def test_an_older_assignment_and_foreign_partitions_are_dropped() -> None:
    consumer = Consumer()
    assert admit(consumer, batch(10, 20), generation=GENERATION - 1) == [False]
    intake = Intake(App(consumer), "g", {OTHER: 0}, holes_are_real=True)
    assert not asyncio.run(intake.admit(AT, GENERATION, batch(0, 1)))


def test_a_partition_that_stands_still_with_more_to_come_is_sought_again() -> None:
    consumer = Consumer(ends={AT: 12, OTHER: 7})
    asyncio.run(sweeper.sweep(App(consumer, idle={AT: 10, OTHER: 7})))
    assert consumer.sought == [{AT: 10}, {AT: 10}], "from the second look on, and only the one"


def test_partitions_that_move_or_work_are_left_alone() -> None:
    consumer = Consumer(ends={AT: 100})

    class Moving(App):
        def idle(self) -> dict[TP, int]:
            return {AT: self._rounds}

    asyncio.run(sweeper.sweep(Moving(consumer)))
    asyncio.run(sweeper.sweep(App(consumer, idle={})))
    rebalancing: Any = App(consumer, idle={AT: 10})
    rebalancing.rebalancing = True
    asyncio.run(sweeper.sweep(rebalancing))
    assert consumer.sought == []
