"""Fetches that keep what they are read from, and can be read whatever a stranger wrote."""

from __future__ import annotations

from typing import Any, Final

import aiokafka.consumer.fetcher
from aiokafka.record.memory_records import MemoryRecords

from topics.kafka.readable_batches import ReadableBatch

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
        self._peeked: ReadableBatch | None = None
        self._suspect = self._ended = False

    def has_next(self) -> bool:
        """Return whether there is a batch to be read.

        Not where one may have been damaged on its way: a reader that ends there fetches it again.
        Not behind one that is damaged either: it may have been the marker that ended an aborted
        transaction, and the producer's later records, which are committed, would be passed over.
        The broker says with the next fetch which transactions are aborted from there on.
        """
        if self._ended:
            return False
        if self._peeked is None and not self._suspect:
            self._peeked = self._read()
            self._suspect = self._peeked is not None and self._peeked.suspect
        return self._peeked is not None and not self._suspect

    def size_in_bytes(self) -> int:
        """Return the bytes there are; 0 where they are to be fetched again.

        aiokafka takes bytes without a batch for one that is larger than a fetch, and goes on.
        """
        return 0 if self._suspect else int(super().size_in_bytes())

    def next_batch(self) -> Any:
        """Return the next batch, None at the end."""
        if not self.has_next():
            return None
        batch, self._peeked = self._peeked, None
        self._ended = batch is not None and batch.damaged
        return batch

    def _read(self) -> ReadableBatch | None:
        batch = super().next_batch()
        if batch is None:
            return None
        begin = self._next
        length = int.from_bytes(self.data[begin + _LENGTH_AT : begin + _BEFORE_LENGTH], "big")
        self._next = begin + _BEFORE_LENGTH + length
        return ReadableBatch(batch, self.data, begin, self._next)


class RetainedRecords(ReadableRecords):
    """The same, with how far they have been read by compiled code."""

    cursor = 0

    def rest(self) -> ReadableRecords:
        """Return what has not been read, for aiokafka to read."""
        return ReadableRecords(self.data[self.cursor :])


def install() -> None:
    """Have fetches of every consumer of aiokafka that is made from now on kept."""
    aiokafka.consumer.fetcher.MemoryRecords = RetainedRecords
