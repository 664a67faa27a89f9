"""Replaces aiokafka's fetch reader by one that keeps the raw data and reads every batch safely."""

from __future__ import annotations

from typing import Any, Final

import aiokafka.consumer.fetcher
from aiokafka.record.memory_records import MemoryRecords

from topics.kafka.readable_batches import ReadableBatch

ISOLATION: Final = "read_committed"
"""Isolation level of every consumer: records of aborted transactions are skipped, and reads stop at
the last stable offset, the first offset of the oldest open transaction."""

# Byte offsets in a record batch of format 2 (Kafka protocol guide, "Record Batch").
_LENGTH_AT: Final = 8
_BEFORE_LENGTH: Final = 12


class ReadableRecords(MemoryRecords):  # type: ignore[misc]
    """The records of a fetch, as batches that can always be read."""

    def __init__(self, data: bytes) -> None:
        """`data`: record batches, the last perhaps truncated."""
        super().__init__(data)
        self.data, self._next = data, 0
        self._peeked: ReadableBatch | None = None
        self._suspect = self._ended = False

    def has_next(self) -> bool:
        """Return whether there is another batch to read.

        False at a batch that may have been damaged in transit, so that it is fetched again. Also
        False behind a damaged batch: it may have been the marker that ended an aborted transaction,
        and the producer's later, committed records would be skipped. The next fetch response lists
        the aborted transactions from there on.
        """
        if self._ended:
            return False
        if self._peeked is None and not self._suspect:
            self._peeked = self._read()
            self._suspect = self._peeked is not None and self._peeked.suspect
        return self._peeked is not None and not self._suspect

    def size_in_bytes(self) -> int:
        """Return the number of bytes; 0 if they have to be fetched again.

        aiokafka takes bytes without a batch for a batch larger than a fetch, and skips them.
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
    """The same, with the position up to which compiled code has read them."""

    cursor = 0

    def rest(self) -> ReadableRecords:
        """Return the unread records, for aiokafka to read."""
        return ReadableRecords(self.data[self.cursor :])


def install() -> None:
    """Install `RetainedRecords` for every aiokafka consumer created from now on."""
    aiokafka.consumer.fetcher.MemoryRecords = RetainedRecords
