"""The raw records of one partition that a fetch returned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

RUN: Final = 128
"""Most records that are decoded together."""
RUN_BYTES: Final = 64_000
"""About as many bytes, so that the decoded events stay in the processor's cache."""

RECORD_BYTES: Final = 64
"""Counted for each header, and for a record at least: about the memory beside their bytes."""

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers in order; a name may come several times."""


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the bytes that a record counts for."""
    size = len(key or b"") + len(value or b"")
    for name, value_of in headers:
        size += len(name) + len(value_of or b"") + RECORD_BYTES
    return max(size, RECORD_BYTES)


class Packed(NamedTuple):
    """The records of a batch as columns: arrays that must not be changed.

    `data`: bytes; `begins` and `ends` of the values in it, -1 where a record has none.
    """

    data: Any
    offsets: Any
    timestamps: Any
    begins: Any
    ends: Any


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one partition, as parallel lists.

    `begin` is the offset that was fetched from and `end` the next one to fetch. Between them there
    may be offsets without records (compaction, transaction markers, aborted records), or no record
    at all. `headers`, by offset: of the few records that have any.
    """

    topic: str
    partition: int
    begin: int
    end: int
    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: dict[int, Headers] = field(default_factory=dict)
    prefetched: Future[Any] | None = field(default=None, init=False, repr=False, compare=False)
    """The `ScannedBatch` of all of it, where a scan was started ahead of its turn."""
    lag: int = field(default=0, init=False, compare=False)
    """How many readable offsets of its partition came after it when it was fetched."""

    @property
    def packed(self) -> Packed | None:
        """The same as columns, if it was read so."""
        return None

    @property
    def size(self) -> int:
        """Bytes of all records together."""
        headers = (self.headers.get(offset, ()) for offset in self.offsets)
        return sum(map(record_bytes, self.keys, self.values, headers))

    def value_bytes_at(self, position: int) -> int:
        """Return the bytes of the value at a position."""
        return len(self.values[position] or b"")

    @property
    def offset(self) -> int:
        """Offset of the first record (Faust reads it as the message's); `begin` without one."""
        return self.offsets[0] if self.offsets else self.begin

    def run(self, begin: int) -> range:
        """Return the positions from `begin` on, at least one, to decode together."""
        return range(begin, min(begin + RUN, self.piece(begin, RUN_BYTES)))

    def plain_run(self, begin: int) -> range:
        """Return the same, up to the next record with headers; the one at `begin` has none."""
        run = self.run(begin)
        if self.headers:
            for position in run:
                if self.offsets[position] in self.headers:
                    return range(begin, position)
        return run

    def piece(self, begin: int, size: int) -> int:
        """Return the position after about `size` bytes from `begin` on, at least one record.

        Estimated by the length of the first.
        """
        return min(begin + max(1, size // max(1, self.value_bytes_at(begin))), len(self))

    def drop_before(self, offset: int) -> None:
        """Drop the records below `offset`."""
        if offset > self.begin:
            self._drop(slice(0, bisect_left(self.offsets, offset)))
            self.begin = offset

    def drop_from(self, offset: int) -> None:
        """Drop the records at and above `offset`."""
        if self.end > offset:
            self._drop(slice(bisect_left(self.offsets, offset), None))
            self.end = max(self.begin, offset)

    def _drop(self, positions: slice) -> None:
        self.prefetched = None
        for of_each in (self.offsets, self.timestamps, self.keys, self.values):
            del of_each[positions]

    def __len__(self) -> int:
        return len(self.offsets)


def empty_batch(topic: str, partition: int, at: int) -> RecordBatch:
    """Return a batch without records, of which begin and end are one offset."""
    return RecordBatch(topic, partition, at, at, [], [], [], [])
