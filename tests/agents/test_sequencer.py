"""The intake: what it takes, and where it sends the consumer back to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agents.consumer.sequencer import FetchSequencer
from processing.records.batch import RecordBatch

AT = "a partition"


class Source:
    """A consumer that only remembers where it was sent."""

    def __init__(self, earliest: int = 0) -> None:
        self.sought: list[tuple[str, int]] = []
        self._earliest = earliest

    async def earliest_offsets(self, place: str) -> Mapping[str, int]:
        return {place: self._earliest}

    async def seek_wait(self, positions: Mapping[str, int]) -> None:
        self.sought += positions.items()


def markers(begin: int, end: int) -> RecordBatch:
    """A fetch of which no record is read: markers, aborted records, what compaction took."""
    return RecordBatch("source", 0, begin, end, [], [], [], [])


def batch(begin: int, end: int, *offsets: int) -> RecordBatch:
    places = list(offsets or range(begin, end))
    nothing: list[bytes | None] = [None] * len(places)
    return RecordBatch("source", 0, begin, end, places, places[:], nothing, nothing[:])


def admit(source: Source, *fetched: RecordBatch, real: bool = True) -> list[bool]:
    intake = FetchSequencer(source, "g", {AT: 10}, holes_are_real=real)

    async def all_of_them() -> list[bool]:
        return [await intake.admit(AT, each) for each in fetched]

    return asyncio.run(all_of_them())


def test_the_next_batch_is_taken_and_an_old_one_dropped() -> None:
    source = Source()
    assert admit(source, batch(10, 20), batch(10, 20), batch(20, 21)) == [True, False, True]
    assert source.sought == []


def test_a_gap_is_fetched_again_from_where_it_begins() -> None:
    source = Source()
    assert admit(source, batch(15, 20), batch(10, 20)) == [False, True]
    assert source.sought == [(AT, 10)]


def test_offsets_without_a_record_are_no_gap() -> None:
    source = Source()
    fetched = batch(10, 12), markers(12, 40), markers(40, 41), batch(41, 43)
    assert admit(source, *fetched) == [True] * 4
    assert admit(source, markers(10, 11), markers(10, 11), batch(11, 12)) == [True, False, True]
    assert source.sought == []


def test_deleted_records_are_skipped() -> None:
    source = Source(earliest=15)
    assert admit(source, batch(15, 20)) == [True]
    assert source.sought == []


def test_a_doubtful_hole_is_fetched_again() -> None:
    source = Source()
    assert admit(source, batch(10, 20, 10, 19), batch(10, 20), real=False) == [False, True]
    assert source.sought == [(AT, 10)]


def test_foreign_partitions_are_dropped() -> None:
    source = Source()
    intake = FetchSequencer(source, "g", {"another": 0}, holes_are_real=True)
    assert not asyncio.run(intake.admit(AT, batch(0, 1)))
    assert source.sought == []
