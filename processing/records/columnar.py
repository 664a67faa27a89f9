"""The records of a fetch as columns, and the batch that has them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from processing.records.batch import Headers, Packed, RecordBatch

WORD: Final = 8
"""Bytes that a scanner needs after the end of a record."""


def words_in(data: Any) -> Any:
    """Return, at each index of some bytes, the eight bytes from there on, as far as there are."""
    words = np.ndarray((max(0, len(data) - WORD + 1),), np.uint64, data, strides=(1,))
    words.flags.writeable = False
    return words


class ColumnarRecordBatch(RecordBatch):
    """A batch whose keys and values become objects on first access only."""

    def __init__(
        self, topic: str, partition: int, begin: int, end: int, packed: Packed,
        keys: tuple[Any, Any], headers: dict[int, Headers], size: int,
    ) -> None:  # fmt: skip
        """`keys`: begins and ends of the keys in `packed.data`. `size`: bytes of all records."""
        self.topic, self.partition, self.begin, self.end = topic, partition, begin, end
        self.offsets, self.timestamps = packed.offsets.tolist(), packed.timestamps.tolist()
        self.headers, self.prefetched, self.lag = headers, None, 0
        self._packed: Packed | None = packed
        self._keys, self._size = keys, size

    @property
    def packed(self) -> Packed | None:
        """The columns, until records are dropped from the lists."""
        return self._packed

    @property
    def size(self) -> int:
        """Bytes of all records together."""
        return super().size if self._packed is None else self._size

    def value_bytes_at(self, position: int) -> int:
        """Return the bytes of the value at a position."""
        packed = self._packed
        if packed is None:
            return super().value_bytes_at(position)
        return int(packed.ends[position]) - int(packed.begins[position])

    def __getattr__(self, name: str) -> Any:
        """Build the list of keys or values on first access."""
        packed = self._packed
        if name == "values" and packed is not None:
            self.values = _pieces(packed.data, packed.begins, packed.ends)
            return self.values
        if name == "keys" and packed is not None:
            self.keys = _pieces(packed.data, *self._keys)
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
