"""What a fetch gives an agent: the records of one partition, raw, in one message."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

RUN: Final = 128
"""Most records that are decoded together."""
RUN_BYTES: Final = 64_000
"""About as many bytes: what comes of them should not leave the processor's cache."""

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers in order; a name may come several times."""


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one partition, as parallel lists.

    `begin` is the position that was fetched from and `end` the next one to fetch: between them
    there may be holes (compaction, transaction markers), which are no loss. `headers` holds, by
    offset, those of the few records that have any.
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
    ahead: Any = field(default=None, init=False, repr=False, compare=False)
    """What a scanner found in all of it, where one looked before it was its turn."""

    @property
    def packed(self) -> Packed | None:
        """The same as columns, where it was read so."""
        return None

    @property
    def size(self) -> int:
        """Bytes of all values together."""
        return sum(map(len, filter(None, self.values)))

    def size_at(self, position: int) -> int:
        """Return the bytes of the value at a position."""
        return len(self.values[position] or b"")

    @property
    def offset(self) -> int:
        """Offset of the first record (Faust reads it as the message's)."""
        return self.offsets[0]

    def run(self, begin: int) -> range:
        """Return the positions from `begin` on, which there is, that are to be decoded together."""
        return range(begin, min(begin + RUN, self.piece(begin, RUN_BYTES)))

    def piece(self, begin: int, size: int) -> int:
        """Return the position behind about `size` bytes, at least one record, from `begin` on.

        As if all were as long as the first.
        """
        return min(begin + max(1, size // max(1, self.size_at(begin))), len(self))

    def drop_before(self, offset: int) -> None:
        """Forget the records below `offset`."""
        if offset > self.begin:
            self._drop(slice(0, bisect_left(self.offsets, offset)))
            self.begin = offset

    def drop_from(self, offset: int) -> None:
        """Forget the records at and above `offset`."""
        if self.end > offset:
            self._drop(slice(bisect_left(self.offsets, offset), None))
            self.end = max(self.begin, offset)

    def _drop(self, positions: slice) -> None:
        self.ahead = None
        for of_each in (self.offsets, self.timestamps, self.keys, self.values):
            del of_each[positions]

    def __len__(self) -> int:
        return len(self.offsets)


class Packed(NamedTuple):
    """The records of a batch as columns, one entry for each; arrays that are not to be changed.

    `data`: bytes; `begins` and `ends` of values in it, -1 where there is none; `key_begins` and
    `key_ends` alike.
    """

    data: Any
    offsets: Any
    timestamps: Any
    begins: Any
    ends: Any
    key_begins: Any
    key_ends: Any


WORD: Final = 8
"""Bytes that a scanner needs behind a record to read it."""


def words_in(data: Any) -> Any:
    """Return, for each place of some bytes that has as many behind it, the eight from there on."""
    words = np.ndarray((max(0, len(data) - WORD + 1),), np.uint64, data, strides=(1,))
    words.flags.writeable = False
    return words


class PackedBatch(RecordBatch):
    """A batch whose keys and values become objects only where somebody asks for them."""

    def __init__(
        self, topic: str, partition: int, begin: int, end: int, packed: Packed,
        headers: dict[int, Headers],
    ) -> None:  # fmt: skip
        self.topic, self.partition, self.begin, self.end = topic, partition, begin, end
        self.offsets, self.timestamps = packed.offsets.tolist(), packed.timestamps.tolist()
        self.headers, self.ahead = headers, None
        self._packed: Packed | None = packed
        self._size = int((packed.ends - packed.begins).sum())

    @property
    def packed(self) -> Packed | None:
        """The columns, as long as nothing was taken from the lists."""
        return self._packed

    @property
    def size(self) -> int:
        """Bytes of all values together."""
        return super().size if self._packed is None else self._size

    def size_at(self, position: int) -> int:
        """Return the bytes of the value at a position."""
        packed = self._packed
        if packed is None:
            return super().size_at(position)
        return int(packed.ends[position]) - int(packed.begins[position])

    def __getattr__(self, name: str) -> Any:
        """Make the list of keys or values: it is not there yet."""
        packed = self._packed
        if name == "values" and packed is not None:
            self.values = _pieces(packed.data, packed.begins, packed.ends)
            return self.values
        if name == "keys" and packed is not None:
            self.keys = _pieces(packed.data, packed.key_begins, packed.key_ends)
            return self.keys
        raise AttributeError(name)

    def _drop(self, positions: slice) -> None:
        super()._drop(positions)
        self._packed = None


def _pieces(data: Any, begins: Any, ends: Any) -> list[bytes | None]:
    every = memoryview(data)
    return [
        bytes(every[begin:end]) if begin >= 0 else None
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
