"""Produces rows as exactly one record batch, dead letters, and control records.

Faust's producer takes 115 to 185 us per key and only logs a failure. Here a failed send raises, and
the agent that awaits it ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from headstart.kafka_producer import start_producer
from processing.records.dead_letters import DeadLetter
from topics.catalogue import CHANGELOG, DEAD_LETTERS, EVENTS
from topics.dead_letters.messages import OutgoingRecord
from topics.kafka.sender import send_all

log = structlog.get_logger()

MAX_BATCH_BYTES: Final = CHANGELOG.max_record_bytes - 65_536
LINGER_BATCH_BYTES: Final = 900_000
"""Of a batch of records that are sent one by one: no topic but the changelog takes more than
1 MiB."""
NOT_COMPRESSED: Final = 0


class BatchTooLarge(RuntimeError):
    """A checkpoint does not fit one record batch; the core stays far below, so this is a bug."""


class BatchProducer:
    """Sends record batches that the broker appends whole or not at all."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect. Raises aiokafka's `KafkaError` if no broker answers."""
        self._producer = await start_producer(
            self._kafka,
            max_batch_size=LINGER_BATCH_BYTES,
            max_request_size=MAX_BATCH_BYTES + 32_768,
            request_timeout_ms=120_000,
        )

    @property
    def idempotent(self) -> bool:
        """Whether the broker gives producer ids, which the embedded one does not."""
        return self._producer is not None and self._producer._txn_manager is not None

    async def stop(self) -> None:
        """Flush and disconnect."""
        if self._producer is not None:
            await self._producer.stop()

    async def send_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None]],
        last_headers: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[int, int]:
        """Send rows as one record batch; return (first, last) of their offsets once acknowledged.

        `last_headers`: of the last record. Raises `BatchTooLarge`, or aiokafka's `KafkaError`.
        """
        assert self._producer is not None
        builder = BatchBuilder(MAX_BATCH_BYTES, NOT_COMPRESSED)
        count = len(rows)
        headers: list[tuple[str, bytes]] = []
        for place, (key, value) in enumerate(rows, 1):
            if place == count:
                headers = [*last_headers]
            if builder.append(key=key, value=value, timestamp=None, headers=headers) is None:
                raise BatchTooLarge(
                    f"{place - 1} of {count} rows fill a record batch of {topic}-{partition}; "
                    "please report this"
                )
        future = await self._producer.send_batch(builder, topic, partition=partition)
        metadata = await future
        return metadata.offset, metadata.offset + count - 1

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Send dead letters and wait until all are acknowledged. Raises `KafkaError`.

        Logs their number, and the origin and reason of the first.
        """
        assert self._producer is not None
        futures = [
            await self._producer.send(
                DEAD_LETTERS.name, letter.value, key=letter.key, headers=letter.headers
            )
            for letter in letters
        ]
        await asyncio.gather(*futures)
        if letters:
            first = letters[0]
            place = f"{first.partition}:{first.offset}"
            log.warning(
                "dead_letters.sent", count=len(letters), first=place, reason=first.reason[:200]
            )

    async def send_controls(self, records: Iterable[OutgoingRecord]) -> None:
        """Send control records and wait until all are acknowledged. Raises `KafkaError`."""
        await self.send_records(EVENTS.name, records)

    async def send_records(self, topic: str, records: Iterable[OutgoingRecord]) -> None:
        """Send records and wait until all are acknowledged. Raises `KafkaError`."""
        assert self._producer is not None
        await send_all(self._producer, topic, records)
