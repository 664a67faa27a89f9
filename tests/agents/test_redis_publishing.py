"""Partitions publish together, one request at a time; a Redis that is away stops no worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from agents.fatal import exit_fatally
from agents.health.metrics import WorkerCounts
from agents.thresholds.checkpoint_buffer import UnpublishedAnswers
from agents.thresholds.early_publishing import EarlyPublisher
from agents.thresholds.redis_publishing import PartitionPublisher, RedisPublishQueue
from processing.config import LearningConfig
from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import context_key, deleted
from processing.task import PartitionTask
from tests.patience import until_in_loop
from tests.processing.building import EPOCH, TD
from topics.schema.json_schema import PublishedThreshold


class Redis:
    """Takes what is published when it is let."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        """Offsets of the thresholds of each request."""
        self.away = False
        self.takes = asyncio.Semaphore(0)

    async def publish(self, batch: Sequence[PublishedThreshold]) -> None:
        self.requests.append([each.offset for each in batch])
        await self.takes.acquire()
        if self.away:
            raise ConnectionError("away")


class One:
    """A partition that answers what was put into it."""

    def __init__(self, queue: RedisPublishQueue, early: EarlyPublisher) -> None:
        self.core = PartitionTask(0, 1, EPOCH, LearningConfig(TD), lambda _key: None)
        self.publisher = PartitionPublisher(queue)
        self.answers: list[int] = []
        self.seen = 0
        self._early = early

    def learns(self, offset: int) -> None:
        self.answers.append(offset)
        self._early.publish_soon(self)  # type: ignore[arg-type]

    def take_answers(self) -> UnpublishedAnswers:
        answers, self.answers = self.answers, []
        return UnpublishedAnswers([threshold(offset) for offset in answers], None)

    def note_published(self, _answers: UnpublishedAnswers) -> None:
        self.seen += 1


def threshold(offset: int) -> PublishedThreshold:
    return threshold_from_row(context_key("acme", "workflow_type=a"), deleted(EPOCH, offset))


def with_redis(body: Callable[[RedisPublishQueue, Redis], Awaitable[None]]) -> None:
    async def run() -> None:
        redis: Any = Redis()
        await body(RedisPublishQueue(redis, WorkerCounts()), redis)

    asyncio.run(asyncio.wait_for(run(), 5.0))


def test_what_is_learned_while_a_request_is_under_way_goes_with_the_next_one() -> None:
    async def body(publishing: RedisPublishQueue, redis: Redis) -> None:
        early = EarlyPublisher(exit_fatally)
        first, second = One(publishing, early), One(publishing, early)
        first.learns(1)
        second.learns(2)
        await until_in_loop(lambda: redis.requests == [[1, 2]])
        for offset in (3, 5):
            first.learns(offset)
        second.learns(4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert redis.requests == [[1, 2]]
        assert (first.seen, second.seen) == (0, 0)
        redis.takes.release()
        await until_in_loop(lambda: redis.requests == [[1, 2], [3, 5, 4]])
        redis.takes.release()
        await until_in_loop(lambda: (first.seen, second.seen) == (2, 2))
        assert not publishing.behind

    with_redis(body)


@pytest.mark.parametrize("again", [True, False])
def test_a_redis_that_is_away_stops_no_partition_and_is_updated_later(again: bool) -> None:
    async def body(publishing: RedisPublishQueue, redis: Redis) -> None:
        one, redis.away = One(publishing, EarlyPublisher(exit_fatally)), True
        for _ in range(9):
            redis.takes.release()
        one.learns(1)
        await until_in_loop(lambda: one.seen == 1)
        assert (publishing.behind, publishing.waiting) == (True, True)
        redis.away = again
        assert await publishing.catch_up() is not again
        assert (publishing.behind, publishing.waiting) == (again, again)
        assert redis.requests == [[1], [1]]

    with_redis(body)


def test_what_is_published_ahead_of_its_rows_is_in_flight_until_they_are_stored() -> None:
    async def body(publishing: RedisPublishQueue, redis: Redis) -> None:
        one = PartitionPublisher(publishing)
        await asyncio.wait_for(one.wait_published(), 1.0)
        ahead, with_rows = threshold(2), threshold(3)
        one.publish([ahead])
        await until_in_loop(lambda: redis.requests == [[2]])
        one.publish([with_rows])
        assert one.in_flight == [ahead, with_rows]
        waiting = asyncio.create_task(one.wait_published())
        await until_in_loop(lambda: redis.requests == [[2], [3]])
        redis.takes.release()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        assert one.in_flight == [ahead, with_rows]
        redis.takes.release()
        await waiting
        assert one.in_flight == ()

    with_redis(body)
