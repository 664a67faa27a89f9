"""Sends records to their partitions and waits for the acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer

from topics.dead_letters.messages import OutgoingRecord


async def send_all(
    producer: AIOKafkaProducer, topic: str, records: Iterable[OutgoingRecord]
) -> list[int]:
    """Send records to a topic; return their offsets once all are acknowledged.

    Raises `KafkaError`.
    """
    futures = [
        await producer.send(
            topic,
            record.value,
            key=record.key,
            partition=record.partition,
            headers=list(record.headers),
        )
        for record in records
    ]
    return [sent.offset for sent in await asyncio.gather(*futures)]
