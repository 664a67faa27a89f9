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
    async def earliest_offsets(self, *places: TP) -> Mapping[TP, int]:
        return dict.fromkeys(places, 0)

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
