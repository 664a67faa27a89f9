"""Finds open transactions, how many records they hold back, and since when.

A `read_committed` consumer stops at the first record of the oldest open transaction. A producer
that neither commits nor aborts thus blocks every consumer until the broker aborts the transaction
(transaction.timeout.ms), or for ever if it is a hanging transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from topics.kafka.reader import reading
from topics.kafka.topic_states import TopicState

LONG_S: Final = 30.0
"""Transactions that are open for longer are reported; most take milliseconds."""
_PATIENCE_S: Final = 3.0


@dataclass(frozen=True)
class OpenTransaction:
    """The oldest open transaction of a partition.

    `offset`: of its first record; `records`: number of offsets from there to the high watermark;
    `since`: timestamp of its first record, Unix ms, None if unknown.
    """

    topic: str
    partition: int
    offset: int
    records: int
    since: int | None = None

    def age_s(self, now: float) -> float:
        """Return for how many seconds it is open at `now` (Unix seconds)."""
        return 0.0 if self.since is None else max(0.0, now - self.since / 1000)

    def described(self, now: float) -> str:
        """Return a description for the user."""
        return (
            f"{self.topic} partition {self.partition}: a transaction open for "
            f"{self.age_s(now):.0f} s at offset {self.offset} holds {self.records:,} records back"
        )


async def open_transactions(kafka: str, states: Iterable[TopicState]) -> list[OpenTransaction]:
    """Return the open transactions of topics that were just described.

    Raises `BrokerUnreachable`, and `LogTruncated` if retention deletes their records meanwhile.
    """
    found = []
    for state in states:
        if held := state.held_back:
            since = await _first_timestamps(kafka, state.name, {n: state.end[n] for n in held})
            found += [
                OpenTransaction(state.name, n, state.end[n], records, since.get(n))
                for n, records in sorted(held.items())
            ]
    return found


def long_open(found: Iterable[OpenTransaction], now: float) -> list[OpenTransaction]:
    """Return those open for longer than `LONG_S` at `now` (Unix seconds)."""
    return [each for each in found if each.age_s(now) > LONG_S]


async def _first_timestamps(kafka: str, topic: str, begin: dict[int, int]) -> dict[int, int]:
    """Return the timestamps of the records at some offsets, committed or not, by partition."""
    found: dict[int, int] = {}
    async with reading(kafka, topic, begin, isolation_level="read_uncommitted") as consumer:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while len(found) < len(begin):
                    for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                        found.setdefault(tp.partition, records[0].timestamp)
    return found
