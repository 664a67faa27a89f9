"""Where the checkpoints of one partition go: Kafka, RocksDB and Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from faust.types import TP

from agents.thresholds.checkpoint_writer import Row
from agents.thresholds.completeness import completeness
from agents.thresholds.redis_publishing import PartitionPublisher
from agents.thresholds.services import PartitionServices
from headstart.keys import threshold_key
from processing.contexts.thresholds import threshold_from_row
from processing.records.dead_letters import DeadLetter
from processing.state.chunking import chunk_rows
from processing.state.rows import CONTEXT
from topics.catalogue import CHANGELOG, THRESHOLDS
from topics.control.messages import Control, control_records
from topics.schema.json_schema import PublishedThreshold

THRESHOLDS_BATCH_BYTES: Final = THRESHOLDS.max_record_bytes - 65_536
"""Keeps a batch of thresholds below the topic's record batch limit."""
_encode = msgspec.json.Encoder().encode


class PartitionTargets:
    """The `CheckpointTargets` of one partition under the assignment that is current now."""

    def __init__(self, tp: TP, services: PartitionServices, publisher: PartitionPublisher) -> None:
        self.reached = 0
        """Where the last batch that was applied whole ended."""
        self.done_to = 0
        """The offset that was last passed to `done`, or `reached` then."""
        self._tp, self._partition = tp, tp.partition
        self._services, self._store, self._publisher = services, services.store, publisher
        self._generation = services.app.consumer_generation_id

    def current(self) -> bool:
        """Return whether this process may still write."""
        self._services.stall_guard.check()
        return bool(self._generation == self._services.app.consumer_generation_id)

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Send dead letters."""
        await self._services.producer.send_dead_letters(letters)

    async def send_rows(self, rows: Sequence[Row], complete_from: int) -> tuple[int, int]:
        """Append rows to the changelog as one record batch."""
        return await self._services.producer.send_rows(
            CHANGELOG.name, self._partition, rows, [completeness(complete_from)]
        )

    async def read_changelog(self, begin: int, end: int) -> Sequence[Row]:
        """Read rows back from the changelog."""
        place, kafka = self._partition, self._services.kafka
        found = self._services.clients.read_records(
            kafka, CHANGELOG.name, {place: begin}, {place: end}
        )
        return [(record.key, record.value) async for record in found]

    def get_row(self, key: bytes) -> bytes | None:
        """Return a row of the local store."""
        return self._store.get_row(self._partition, key)

    def write_rows(self, rows: Sequence[Row], changelog_offset: int | None) -> None:
        """Write rows to the local store."""
        self._store.write_rows(self._partition, rows, changelog_offset)

    def publish(self, thresholds: Sequence[PublishedThreshold]) -> None:
        """Begin to publish to Redis."""
        self._publisher.publish(thresholds)

    async def wait_published(self) -> None:
        """Return when Redis has all that was published, or was found away."""
        await self._publisher.wait_published()

    async def produce_thresholds(self, changed: Sequence[PublishedThreshold]) -> None:
        """Append thresholds to the compacted topic, in the partition of their events."""
        await self._send_thresholds(
            [(threshold_key(each.tenant, each.path), _encode(each)) for each in changed]
        )

    async def produce_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append the thresholds of those rows that are published."""
        await self.produce_thresholds(self._services.thresholds_of(self._partition, rows))

    async def delete_published(self, markers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Delete contexts from Redis and the compacted topic; return False while Redis is away."""
        expired = [threshold_from_row(key, row) for key, row in markers if key.startswith(CONTEXT)]
        if expired and not await self._services.publish_queue.delete_expired(expired):
            return False
        await self._send_thresholds(
            [(threshold_key(each.tenant, each.path), None) for each in expired]
        )
        return True

    async def send_control(self, control: Control, partitions: Sequence[int]) -> bool:
        """Send a control record into partitions of the events; return False if this one is lost.

        Raises aiokafka's `KafkaError`.
        """
        if not self.current():
            return False
        key = self._services.rules.operators_key
        await self._services.producer.send_controls(control_records(control, partitions, key))
        return True

    async def _send_thresholds(self, rows: Sequence[Row]) -> None:
        for part in chunk_rows(rows, THRESHOLDS_BATCH_BYTES):
            await self._services.producer.send_rows(THRESHOLDS.name, self._partition, part)

    def done(self, end: int) -> None:
        """Let `end` be committed, unless something waits for Redis.

        What waits is lost with this process. The next owner publishes again from the committed
        offset on, so that must not pass it.
        """
        self.done_to = end = max(end, self.reached)
        self._services.app.consumer.done(
            self._tp, end, commit=not self._services.publish_queue.behind
        )
