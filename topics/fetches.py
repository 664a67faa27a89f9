"""Fetches that keep what they are read from, and can be read whatever a stranger wrote."""

from __future__ import annotations

from typing import Any, Final

import aiokafka.consumer.fetcher
from aiokafka.record.memory_records import MemoryRecords

from topics.batches import ReadableBatch

ISOLATION: Final = "read_committed"
"""Isolation level of every consumer: records of aborted transactions are skipped, and nothing is
read past the last stable offset, where the first transaction begins that is still open."""

# Places in a record batch of format 2 (Kafka protocol guide, "Record Batch").
_LENGTH_AT: Final = 8
_BEFORE_LENGTH: Final = 12


class ReadableRecords(MemoryRecords):  # type: ignore[misc]
    """The records of a fetch; their batches can be read where aiokafka's own cannot."""

    def __init__(self, data: bytes) -> None:
        """`data`: record batches, the last perhaps cut off."""
        super().__init__(data)
        self.data, self._next = data, 0

    def next_batch(self) -> Any:
        """Return the next batch, None at the end."""
        batch = super().next_batch()
        if batch is None:
            return None
        begin = self._next
        length = int.from_bytes(self.data[begin + _LENGTH_AT : begin + _BEFORE_LENGTH], "big")
        self._next = begin + _BEFORE_LENGTH + length
        return ReadableBatch(batch, self.data, begin, self._next)


class KeptRecords(ReadableRecords):
    """The same, with how far they have been read by compiled code."""

    cursor = 0

    def rest(self) -> ReadableRecords:
        """Return what has not been read, for aiokafka to read."""
        return ReadableRecords(self.data[self.cursor :])


def install() -> None:
    """Have fetches of every consumer of aiokafka that is made from now on kept."""
    aiokafka.consumer.fetcher.MemoryRecords = KeptRecords
