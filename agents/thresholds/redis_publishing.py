"""Publishes the thresholds of a worker's partitions to Redis; what fails is kept and retried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import structlog

from agents.health.metrics import WorkerCounts
from sinks.redis.pending import PendingThresholds
from sinks.redis.thresholds import ThresholdPublisher
from topics.schema.json_schema import PublishedThreshold

log = structlog.get_logger()


class RedisPublishQueue:
    """Combines what partitions publish at the same moment into one request."""

    def __init__(self, publisher: ThresholdPublisher, counts: WorkerCounts) -> None:
        self.behind = False
        """Whether something waits for Redis, or did until `catch_up` last looked."""
        self._publisher, self._counts = publisher, counts
        self._pending = PendingThresholds()
        self._combined: list[PublishedThreshold] = []
        self._publishing: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether something waits for Redis."""
        return bool(self._pending)

    def publish(self, thresholds: Sequence[PublishedThreshold]) -> Awaitable[None]:
        """Publish, in one request with what other partitions publish now; starts at once.

        A failure never stops learning: the thresholds are kept and retried.
        """
        if not thresholds:
            nothing = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        self._combined += thresholds
        if self._publishing is None:
            self._publishing = asyncio.create_task(self._publish_combined())
        return asyncio.shield(self._publishing)

    async def _publish_combined(self) -> None:
        await asyncio.sleep(0)  # one acknowledgement of the broker lets several partitions go on
        thresholds, self._combined, self._publishing = self._combined, [], None
        try:
            await self.publish_now(thresholds)
        except ConnectionError as error:
            if not self._pending:
                log.warning("redis.unavailable", error=str(error))
            self._pending.add(thresholds)
            self.behind = True
            self._counts.redis_failures += 1
        self._counts.waiting = len(self._pending)

    async def publish_now(self, thresholds: Sequence[PublishedThreshold]) -> int:
        """Publish and return how many there were. Raises `ConnectionError`."""
        await self._publisher.publish(thresholds)
        self._counts.published += len(thresholds)
        return len(thresholds)

    async def catch_up(self) -> bool:
        """Publish what waits; return whether nothing does any more."""
        if self._pending:
            await self.publish(self._pending.drain())
        if not self._pending:
            self.behind = False
        return not self._pending

    async def delete_expired(self, expired: Sequence[PublishedThreshold]) -> bool:
        """Delete contexts that were deleted long ago; return False where that has to wait."""
        try:
            await self._publisher.delete_expired(expired)
        except ConnectionError:
            return False
        return not self.behind

    async def close(self) -> None:
        """Disconnect."""
        await self._publisher.close()


class PartitionPublisher:
    """Publishes the thresholds of one partition, under one assignment."""

    def __init__(self, queue: RedisPublishQueue) -> None:
        self.in_flight: Sequence[PublishedThreshold] = ()
        """Published since the last checkpoint: the local store may not have their rows yet."""
        self._queue = queue
        self._requests: list[Awaitable[None]] = []

    def publish(self, thresholds: Sequence[PublishedThreshold]) -> Awaitable[None]:
        """Publish, also ahead of the rows (see `CheckpointWriter.write`); starts at once."""
        self.in_flight = [*self.in_flight, *thresholds]
        request = self._queue.publish(thresholds)
        self._requests.append(request)
        return request

    async def wait_published(self) -> None:
        """Return when Redis has all that was published here, or was found away."""
        requests, self._requests = self._requests, []
        for request in requests:
            await request
        self.in_flight = ()
