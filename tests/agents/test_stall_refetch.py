"""The sweeper against a consumer that only remembers where it was sent."""

from __future__ import annotations

import asyncio
from typing import Any

from faust.types import TP

from agents.consumer import stall_refetch as sweeper

AT, OTHER = TP("source", 0), TP("source", 1)


class Consumer:
    """Stands for Faust's: these faults cannot be had from a broker at will."""

    def __init__(self, ends: dict[TP, int]) -> None:
        self.sought: list[dict[TP, int]] = []
        self._ends = ends

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        return {tp: self._ends[tp] for tp in tps}

    async def seek_wait(self, positions: dict[TP, int]) -> None:
        self.sought.append(dict(positions))


class App:
    """As much of an app as the sweeper looks at."""

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


def test_a_partition_that_stands_still_with_more_to_come_is_sought_again() -> None:
    consumer = Consumer(ends={AT: 12, OTHER: 7})
    asyncio.run(sweeper.refetch_stalled_partitions(App(consumer, idle={AT: 10, OTHER: 7})))
    assert consumer.sought == [{AT: 10}, {AT: 10}], "from the second look on, and only the one"


def test_partitions_that_move_or_work_are_left_alone() -> None:
    consumer = Consumer(ends={AT: 100})

    class Moving(App):
        def idle(self) -> dict[TP, int]:
            return {AT: self._rounds}

    asyncio.run(sweeper.refetch_stalled_partitions(Moving(consumer)))
    asyncio.run(sweeper.refetch_stalled_partitions(App(consumer, idle={})))
    rebalancing: Any = App(consumer, idle={AT: 10})
    rebalancing.rebalancing = True
    asyncio.run(sweeper.refetch_stalled_partitions(rebalancing))
    assert consumer.sought == []
