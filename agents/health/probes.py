"""Probes the services: where the log ends, and whether they answer.

Its clients are independent of the agents' own, so that a consumer that died silently still shows
lag.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from redis.exceptions import ResponseError

from headstart.connections.kafka_connections import new_consumer
from sinks.connections import connect_postgres, connect_redis
from sinks.redis.masters import times
from topics.kafka.fetch_patch import ISOLATION
from topics.kafka.topic_states import high_watermarks

log = structlog.get_logger()

ANSWER_S: Final = 5.0
"""How long a service may take to answer before it counts as away."""

Probe = Callable[[], Awaitable[float | None]]
"""Asks a service; returns its Unix seconds, or None if it does not say them."""


class ProbeAnswer(NamedTuple):
    """Whether a service answered in time, and by how many seconds our clock is ahead of its."""

    there: bool
    ahead_s: float | None = None


async def asked(probe: Probe) -> ProbeAnswer:
    """Ask a service. Raises nothing: whatever the error, it did not answer."""
    began = time.time()
    try:
        async with asyncio.timeout(ANSWER_S):
            theirs = await probe()
    except Exception as error:
        log.debug("probe.failed", error=repr(error))
        return ProbeAnswer(there=False)
    if theirs is None:
        return ProbeAnswer(there=True)
    return ProbeAnswer(there=True, ahead_s=(began + time.time()) / 2 - theirs)


class LogEnds:
    """The (begin, end) of each partition of one topic, when last read from the broker.

    The end is the last stable offset: what an open transaction holds back cannot be worked off.
    """

    def __init__(self, kafka: str, topic: str, partitions: int) -> None:
        self._kafka = kafka
        self._tps = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer: AIOKafkaConsumer | None = None
        self._ends: dict[int, tuple[int, int]] = {}
        self._held: dict[int, int] = {}

    async def ask(self) -> None:
        """Ask the broker. Raises `KafkaError`, `OSError`."""
        try:
            if self._consumer is None:
                self._consumer = new_consumer(
                    self._kafka, enable_auto_commit=False, isolation_level=ISOLATION
                )
                await self._consumer.start()
            high = await high_watermarks(self._consumer, self._tps)
            begin = await self._consumer.beginning_offsets(self._tps)
            # The embedded broker counts one record of the last batch only: too few, never none.
            end = await self._consumer.end_offsets(self._tps)
        except BaseException:
            await self.close()
            raise
        self._ends = {tp.partition: (begin[tp], end[tp]) for tp in self._tps}
        self._held = {tp.partition: max(0, high[tp] - end[tp]) for tp in self._tps}

    def lag(self, done: Mapping[int, int]) -> dict[int, int]:
        """Return how many records each partition of `done` has beyond its offset."""
        known = {partition: self._ends[partition] for partition in done if partition in self._ends}
        return {
            partition: max(0, end - max(begin, done[partition]))
            for partition, (begin, end) in known.items()
        }

    def held_back(self, done: Mapping[int, int]) -> dict[int, int]:
        """Return how many offsets an open transaction holds back in partitions of `done`."""
        return {partition: self._held[partition] for partition in done if partition in self._held}

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(KafkaError, OSError):  # TimeoutError is one
                async with asyncio.timeout(ANSWER_S):
                    await consumer.stop()


def postgres_probe(dsn: str) -> Probe:
    """Return what asks Postgres, on a connection of its own each time."""

    async def ask() -> float:
        async with await connect_postgres(dsn) as connection:
            answer = await connection.execute(
                "SELECT extract(epoch FROM clock_timestamp())::float8"
            )
            row = await answer.fetchone()
        return float(row[0]) if row else time.time()

    return ask


def redis_probe(url: str) -> Probe:
    """Return what asks Redis, on a connection of its own each time."""

    async def ask() -> float | None:
        redis = connect_redis(url)
        try:
            await redis.ping()
            with suppress(ResponseError):  # an ACL without `time`
                found = sorted(await times(redis))
                seconds, microseconds = found[len(found) // 2]
                return int(seconds) + int(microseconds) / 1e6
            return None
        finally:
            await redis.aclose()

    return ask
