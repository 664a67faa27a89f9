"""Tracks the next offset of each partition, and decides what to do with a fetched batch. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from processing.records.batch import RecordBatch
from topics.kafka.limits import WholeBytes

Partition = TypeVar("Partition")
"""Type that identifies a partition."""

MOST_TRIES: Final = 20
"""How often a batch with holes is fetched again before the holes count as real."""


class FetchDecision(Enum):
    """What to do with a batch."""

    TAKE = "take"
    OLD = "old"
    """It was taken before: drop it."""
    GAP = "gap"
    """It begins after the expected offset: fetch from that offset again."""
    HOLE = "hole"
    """Records may still be missing within it: fetch it again."""


class OffsetTracker(Generic[Partition]):
    """The next offset of each partition of one assignment.

    `holes_are_real`: whether offsets missing within a batch have no records. In Kafka they have
    none (compaction, transaction markers). The embedded broker, with several producers, may serve a
    later batch before an earlier one, whose records appear a moment later.
    """

    def __init__(self, begin: Mapping[Partition, int], *, holes_are_real: bool) -> None:
        self._next = dict(begin)
        self._holes_are_real = holes_are_real
        self._tries: dict[Partition, tuple[int, int]] = {}

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._next

    def __getitem__(self, partition: Partition) -> int:
        return self._next[partition]

    def copy(self) -> dict[Partition, int]:
        """Return the next offset of every partition."""
        return self._next.copy()

    def judge(self, partition: Partition, batch: RecordBatch) -> FetchDecision:
        """Return what to do with `batch`.

        TAKE moves the partition's offset to its end, and drops from it what was taken before.
        """
        expected = self._next[partition]
        if batch.begin > expected:
            return FetchDecision.GAP
        if batch.end <= expected:
            return FetchDecision.OLD
        if not self._holes_are_real and self._may_miss_records(partition, batch):
            return FetchDecision.HOLE
        if batch.begin < expected:
            batch.drop_before(expected)
        self._next[partition] = batch.end
        return FetchDecision.TAKE

    def skip_lost(self, partition: Partition, earliest: int) -> int:
        """Skip what the broker no longer has; return how many offsets."""
        lost = max(0, earliest - self._next[partition])
        self._next[partition] += lost
        return lost

    def _may_miss_records(self, partition: Partition, batch: RecordBatch) -> bool:
        if not missing(batch):
            return False
        begin, tries = self._tries.get(partition, (-1, 0))
        tries = tries + 1 if begin == batch.begin else 1
        self._tries[partition] = (batch.begin, tries)
        return tries <= MOST_TRIES


def missing(batch: RecordBatch) -> int:
    """Return how many offsets of a batch have no record.

    A record that stands for a whole unreadable record batch covers all of its offsets: fetching it
    again does not help, and unpacks up to 64 MB each time.
    """
    if len(batch) == batch.end - batch.begin:
        return 0
    if batch.packed is not None:  # kernels do not unpack unreadable batches
        return batch.end - batch.begin - len(batch)
    count, expected = 0, batch.begin
    for offset, value in zip(batch.offsets, batch.values, strict=True):
        first, end = offset, offset + 1
        if isinstance(value, WholeBytes):
            first, end = value.first, value.end
        count += max(0, first - expected)
        expected = end
    return count + max(0, batch.end - expected)
