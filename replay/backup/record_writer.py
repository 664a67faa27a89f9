"""Writes saved records to topics, in their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headstart.kafka_producer import BrokerUnreachable, end_producer, start_producer
from replay.backup.saved_records import SavedRecord
from topics.catalogue import CHANGELOG

BATCH_BYTES: Final = 4_000_000
"""Bytes that are sent before an acknowledgement is waited for."""
_RECORD_BYTES: Final = 500
"""What a record that waits takes beside its key and value, about."""
_MAX_REQUEST: Final = CHANGELOG.max_record_bytes - 65_536
_OLDEST_MS: Final = 86_400_000


def kept_by_retention(record: SavedRecord) -> SavedRecord:
    """Return a record that is at most a day old by its timestamp.

    Retention would delete an older one before a worker has read it.
    """
    oldest = time.time_ns() // 1_000_000 - _OLDEST_MS
    return record._replace(timestamp=max(record.timestamp or 0, oldest))


@asynccontextmanager
async def producing(kafka: str) -> AsyncIterator[AIOKafkaProducer]:
    """Yield a producer. Raises `BrokerUnreachable`, also for what fails while it is used."""
    try:
        producer = await start_producer(
            kafka, max_request_size=_MAX_REQUEST, request_timeout_ms=120_000
        )
        try:
            yield producer
        finally:
            await end_producer(producer, 5.0)
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error


async def send_saved(producer: Any, topic: str, records: Iterable[SavedRecord]) -> None:
    """Send records in their order, a bounded number of bytes at once."""
    waiting, size = list[Any](), 0
    for each in records:
        waiting.append(
            await producer.send(
                topic, each.value, key=each.key, partition=each.partition,
                timestamp_ms=each.timestamp, headers=list(each.headers),
            )
        )  # fmt: skip
        size += len(each.value or b"") + len(each.key or b"") + _RECORD_BYTES
        if size > BATCH_BYTES:
            await asyncio.gather(*waiting)
            waiting, size = [], 0
    await asyncio.gather(*waiting)
