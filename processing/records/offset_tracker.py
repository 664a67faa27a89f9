"""Which fetched batch comes next: the offset expected of each partition, and what may be wrong.

No I/O: whoever fetches asks for a verdict and acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from processing.records.batch import RecordBatch
from topics.kafka.limits import WholeBytes

Place = TypeVar("Place")
"""Whatever names a partition."""

MOST_TRIES: Final = 20
"""How often a batch with holes is fetched again before they are taken for real."""


class FetchDecision(Enum):
    """What to do with a batch."""

    TAKE = "take"
    OLD = "old"
    """Taken before: drop it."""
    GAP = "gap"
    """It begins beyond what is expected: fetch from there again."""
    HOLE = "hole"
    """Records within it may be yet to come: fetch it again."""


class OffsetTracker(Generic[Place]):
    """The next offset of each partition of one assignment.

    `holes_are_real`: whether offsets missing within a batch are nothing to worry about. Kafka's are
    (compaction, transaction markers). The embedded broker, under several producers, shows a later
    batch before an earlier one: the records are there a moment later.
    """

    def __init__(self, begin: Mapping[Place, int], *, holes_are_real: bool) -> None:
        self._next = dict(begin)
        self._holes_are_real = holes_are_real
        self._tries: dict[Place, tuple[int, int]] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._next

    def __getitem__(self, place: Place) -> int:
        return self._next[place]

    def copy(self) -> dict[Place, int]:
        """Return the next offset of every partition."""
        return self._next.copy()

    def judge(self, place: Place, batch: RecordBatch) -> FetchDecision:
        """Return what to do with `batch`.

        TAKE moves the partition's position to its end; what was taken before is dropped from it.
        """
        expected = self._next[place]
        if batch.begin > expected:
            return FetchDecision.GAP
        if batch.end <= expected:
            return FetchDecision.OLD
        if not self._holes_are_real and self._doubtful(place, batch):
            return FetchDecision.HOLE
        if batch.begin < expected:
            batch.drop_before(expected)
        self._next[place] = batch.end
        return FetchDecision.TAKE

    def skip_lost(self, place: Place, earliest: int) -> int:
        """Move past what the broker no longer has; return how many offsets that were."""
        lost = max(0, earliest - self._next[place])
        self._next[place] += lost
        return lost

    def _doubtful(self, place: Place, batch: RecordBatch) -> bool:
        if not missing(batch):
            return False
        begin, tries = self._tries.get(place, (-1, 0))
        tries = tries + 1 if begin == batch.begin else 1
        self._tries[place] = (batch.begin, tries)
        return tries <= MOST_TRIES


def missing(batch: RecordBatch) -> int:
    """Return how many offsets of a batch have no record.

    What stands for a whole record batch that cannot be read has all of its offsets: to fetch it
    again is no use, and unpacks up to 64 MB each time.
    """
    if len(batch) == batch.end - batch.begin:
        return 0
    if batch.packed is not None:  # compiled code leaves such batches to others
        return batch.end - batch.begin - len(batch)
    count, expected = 0, batch.begin
    for offset, value in zip(batch.offsets, batch.values, strict=True):
        first, end = offset, offset + 1
        if isinstance(value, WholeBytes):
            first, end = value.first, value.end
        count += max(0, first - expected)
        expected = end
    return count + max(0, batch.end - expected)
