"""What a worker publishes to Redis: of its partitions together, and later where Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol

import structlog

from agents.fatal import exit_fatally
from agents.health.metrics import WorkerCounts
from processing.task import PartitionTask, settle
from sinks.redis.pending import PendingThresholds
from sinks.redis.thresholds import ThresholdPublisher
from topics.schema.json_schema import PublishedThreshold

log = structlog.get_logger()


class PublishSource(Protocol):
    """A partition whose answers are published ahead of their rows."""

    core: PartitionTask

    def tell(self) -> None:
        """Begin to publish what its contexts answer by now."""
        ...

    async def told(self) -> None:
        """Return when readers may see it, or Redis has been found away."""
        ...


class RedisPublishQueue:
    """The thresholds of a worker on their way to Redis."""

    def __init__(self, redis_url: str, counts: WorkerCounts) -> None:
        self.behind = False
        """Whether something waits for Redis, or did until `catch_up` last looked."""
        self._publisher = ThresholdPublisher(redis_url)
        self._counts = counts
        self._pending = PendingThresholds()
        self._together: list[PublishedThreshold] = []
        self._publishing: asyncio.Task[None] | None = None
        self._due: dict[PublishSource, None] = {}
        self._telling: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether something waits for Redis."""
        return bool(self._pending)

    def tell(self, partition: PublishSource) -> None:
        """Have a partition's answers published soon, with those of others.

        One request is under way at a time: what contexts learn meanwhile is in the next one.
        """
        self._due[partition] = None
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._due:
                due, self._due = list(self._due), {}
                settle([each.core for each in due])
                for each in due:
                    each.tell()
                for each in due:
                    await each.told()
        except Exception as error:
            exit_fatally("publishing", error)
        self._telling = None

    def publish(self, thresholds: Sequence[PublishedThreshold]) -> Awaitable[None]:
        """Publish, in one request with what other partitions publish now; begins at once.

        A failure never stops learning: what failed waits and is retried.
        """
        if not thresholds:
            nothing = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        self._together += thresholds
        if self._publishing is None:
            self._publishing = asyncio.create_task(self._publish_together())
        return asyncio.shield(self._publishing)

    async def _publish_together(self) -> None:
        await asyncio.sleep(0)  # one acknowledgement of the broker lets several partitions go on
        thresholds, self._together, self._publishing = self._together, [], None
        try:
            await self.publish_now(thresholds)
        except ConnectionError as error:
            if not self._pending:
                log.warning("redis.away", error=str(error))
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

    async def bury(self, gone: Sequence[PublishedThreshold]) -> bool:
        """Take contexts that went long ago out of Redis; return False where that has to wait."""
        try:
            await self._publisher.delete_expired(gone)
        except ConnectionError:
            return False
        return not self.behind

    async def close(self) -> None:
        """Disconnect."""
        await self._publisher.close()
