"""Publishes a partition's thresholds again when Redis has lost them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from agents.thresholds.partition import OwnedPartition
from agents.thresholds.redis_repair import RedisChecks
from agents.thresholds.services import PartitionServices
from sinks.redis.publish_markers import PublishMarkers

log = structlog.get_logger()


class RedisLossDetector:
    """Retries what waits for Redis, and notices a Redis that was emptied or replaced."""

    def __init__(
        self,
        services: PartitionServices,
        markers: PublishMarkers,
        owned: Callable[[], Mapping[int, OwnedPartition]],
        checks: RedisChecks,
    ) -> None:
        """`owned`: returns the partitions that this worker has now, by number."""
        self._services, self._markers = services, markers
        self._owned, self._checks = owned, checks

    async def work(self) -> None:
        """Publish what waits, then everything that Redis has lost."""
        services = self._services
        if not await services.publish_queue.catch_up():
            return
        for each in self._owned().values():
            services.app.consumer.commit_done(each.tp)
        try:
            if partitions := list(self._owned()):
                run, lost = await self._markers.unpublished(partitions)
                for partition in lost:
                    await self._publish_again(partition, run)
        except ConnectionError:
            return  # the next publish will report it

    async def _publish_again(self, partition: int, run: bytes) -> None:
        services = self._services
        mark = await self._markers.begin(partition)
        owned = self._owned().get(partition)
        # Before the store is read, which may not have their rows yet.
        in_flight = () if owned is None else owned.publisher.in_flight
        count = 0
        async for rows in services.store.scan_chunks(partition):
            count += await services.publish_queue.publish_now(
                services.thresholds_of(partition, rows)
            )
        count += await services.publish_queue.publish_now(in_flight)
        # Another owner, with newer rows, would take the marker for its own.
        services.stall_guard.check()
        await self._markers.remember(partition, run, mark)
        self._checks.request_round()  # values newer than the table were not replaced
        log.info("thresholds.republished", partition=partition, thresholds=count)
