"""The intake of an assignment: the next batch of each partition, of its generation, while open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from faust.types import TP

from agents.consumer.batch_intake import BatchIntake
from processing.records.batch import RecordBatch
from tests.patience import until_in_loop

AT = TP("source", 0)


def batch(begin: int) -> RecordBatch:
    return RecordBatch("source", 0, begin, begin + 1, [begin], [begin], [None], [b"x"])


class Consumer:
    earliest = 0

    async def earliest_offsets(self, *places: TP) -> Mapping[TP, int]:
        return dict.fromkeys(places, self.earliest)

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Every batch comes in order here."""

    def pause(self, tp: TP, paused: bool) -> None:
        """Nothing is large enough."""


def test_it_takes_what_is_next_between_opening_and_closing() -> None:
    taken: list[int] = []
    hold = asyncio.Event()

    async def handle(batches: list[tuple[TP, RecordBatch]]) -> None:
        await hold.wait()
        taken.extend(each.begin for _, each in batches)

    async def body() -> None:
        lost: list[int] = []
        intake = BatchIntake(
            "test", handle, on_lost=lost.append, on_error=lambda *error: lost.append(0)
        )
        await intake.accept(AT, 1, batch(7))
        assert intake.idle() == {}, "nothing is assigned"
        await intake.close(1.0)
        intake.open(Consumer(), 1, {AT: 7}, holes_are_real=True)
        assert intake.idle() == {AT: 7}
        await intake.accept(AT, 1, batch(7))
        await intake.accept(AT, 1, batch(7))  # delivered again
        await intake.accept(AT, 0, batch(8))  # fetched for an earlier assignment
        assert intake.idle() == {}, "a batch is in flight"
        hold.set()
        await until_in_loop(lambda: intake.idle() == {AT: 8})
        assert taken == [7]
        await intake.close(1.0)
        await intake.accept(AT, 1, batch(8))
        assert (intake.idle(), taken, lost) == ({}, [7], [])

    asyncio.run(asyncio.wait_for(body(), 60.0))


def test_an_empty_batch_follows_what_was_lost() -> None:
    done: list[object] = []

    async def handle(batches: list[tuple[TP, RecordBatch]]) -> None:
        done.extend((each.begin, each.end, len(each)) for _, each in batches)

    async def on_lost(_tp: TP, lost: range) -> None:
        done.append(lost)

    async def body() -> None:
        intake = BatchIntake("test", handle, on_lost=on_lost, on_error=lambda *e: done.append(e))
        consumer = Consumer()
        intake.open(consumer, 1, {AT: 5}, holes_are_real=True)
        await intake.accept(AT, 1, batch(5))
        await until_in_loop(lambda: intake.idle() == {AT: 6})
        consumer.earliest = 9
        await intake.skip_lost()
        await intake.accept(AT, 1, batch(9))
        await until_in_loop(lambda: intake.idle() == {AT: 10})
        assert done == [(5, 6, 1), range(6, 9), (9, 9, 0), (9, 10, 1)]
        await intake.close(1.0)

    asyncio.run(asyncio.wait_for(body(), 60.0))
