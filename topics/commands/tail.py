"""Commands behind the first record of an open transaction: they count as soon as they are there.

A consumer of committed records stops where a transaction begins that is still open, whoever wrote
it. A mode `off` that was sent after that must not wait for it. No command of Headstart's is part of
a transaction, so records that are not are read up to the high watermark; those that are count once
their transaction was committed, when the consumer of committed records comes to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from topics.kafka.readable_batches import IN_TRANSACTION
from topics.kafka.reader import LogTruncated, read_records

_PATIENCE_S: Final = 10.0


async def outside_transactions(kafka: str, topic: str, begin: int, end: int) -> AsyncIterator[Any]:
    """Yield the records from `begin` to `end` (exclusive) of partition 0 that no transaction has.

    Raises `BrokerUnreachable` and `LogTruncated`.
    """
    level = "read_uncommitted"
    async for record in read_records(kafka, topic, {0: begin}, {0: end}, level):
        if record.checksum != IN_TRANSACTION:
            yield record


class CommandTail:
    """The records outside transactions from the last stable offset on; each is read once."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._begin = self._end = 0
        self.records: list[Any] = []

    async def read(self, begin: int, end: int) -> bool:
        """Have `records` be those from `begin` to `end` (exclusive); return whether they are.

        Where they are not, the log changed meanwhile: try again with its new offsets. Raises
        `BrokerUnreachable`.
        """
        if begin < self._begin:  # the log was begun anew
            self.records, self._end = [], begin
        self._begin, self._end = begin, max(begin, self._end)
        self.records = [each for each in self.records if each.offset >= begin]
        with suppress(LogTruncated, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                found = outside_transactions(self._kafka, self._topic, self._end, end)
                new = [each async for each in found]
            self.records += new
            self._end = max(self._end, end)
        return self._end >= end
