"""Reads commands behind an open transaction, up to the high watermark.

A `read_committed` consumer stops at the first record of the oldest open transaction, and a mode
`off` that was sent later must not wait for it. Headstart never sends commands in transactions, so
records outside transactions are read here at once; those within count when they are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from topics.kafka.readable_batches import IN_TRANSACTION
from topics.kafka.reader import LogTruncated, read_records

_READ_TIMEOUT_S: Final = 10.0


async def outside_transactions(kafka: str, topic: str, begin: int, end: int) -> AsyncIterator[Any]:
    """Yield the records of partition 0 from `begin` to `end` (exclusive) outside transactions.

    Raises `BrokerUnreachable` and `LogTruncated`.
    """
    level = "read_uncommitted"
    async for record in read_records(kafka, topic, {0: begin}, {0: end}, level):
        if record.checksum != IN_TRANSACTION:
            yield record


class CommandTail:
    """The records outside transactions behind the last stable offset; each is read once."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._begin = self._end = 0
        self.records: list[Any] = []

    async def read(self, begin: int, end: int) -> bool:
        """Update `records` to those from `begin` to `end` (exclusive); return whether it succeeded.

        It fails if the log was truncated meanwhile: try again with its new offsets. Raises
        `BrokerUnreachable`.
        """
        if begin < self._begin:  # this is a new log
            self.records, self._end = [], begin
        self._begin, self._end = begin, max(begin, self._end)
        self.records = [each for each in self.records if each.offset >= begin]
        with suppress(LogTruncated, TimeoutError):
            async with asyncio.timeout(_READ_TIMEOUT_S):
                found = outside_transactions(self._kafka, self._topic, self._end, end)
                new = [each async for each in found]
            self.records += new
            self._end = max(self._end, end)
        return self._end >= end
