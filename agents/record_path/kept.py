"""Fetches that keep what they are read from."""

from __future__ import annotations

import aiokafka.consumer.fetcher
from aiokafka.record.memory_records import MemoryRecords


class KeptRecords(MemoryRecords):  # type: ignore[misc]
    """The records of a fetch, with what they are read from, and how far they have been."""

    def __init__(self, data: bytes) -> None:
        """`data`: record batches, the last perhaps cut off."""
        super().__init__(data)
        self.data, self.cursor = data, 0

    def rest(self) -> MemoryRecords:
        """Return what has not been read, for aiokafka to read."""
        return MemoryRecords(self.data[self.cursor :])


def install() -> None:
    """Have fetches of every consumer of aiokafka that is made from now on kept."""
    aiokafka.consumer.fetcher.MemoryRecords = KeptRecords
