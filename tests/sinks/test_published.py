"""What Redis remembers of a publication, and what it forgets with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from sinks.connections import RedisUnreachable
from sinks.redis.publish_markers import KEY, PublishMarkers

P = 7_001  # a partition that no other test has


def check(redis_url: str, body: Callable[[PublishMarkers, Redis], Awaitable[None]]) -> None:
    async def run() -> None:
        published, redis = PublishMarkers(redis_url), Redis.from_url(redis_url)
        try:
            await body(published, redis)
        finally:
            await redis.hdel(KEY, str(P))
            await published.close()
            await redis.aclose()

    asyncio.run(run())


def test_a_published_partition_is_marked_until_redis_loses_it(redis_url: str) -> None:
    async def body(published: PublishMarkers, redis: Redis) -> None:
        run, unpublished = await published.unpublished([P])
        assert unpublished == [P]
        mark = await published.begin(P)
        assert (await published.unpublished([P]))[1] == [P]
        await published.remember(P, run, mark)
        assert await published.unpublished([P]) == (run, [])
        await redis.hdel(KEY, str(P))
        assert await published.unpublished([P]) == (run, [P])

    check(redis_url, body)


def test_a_redis_emptied_in_mid_publication_is_noticed(redis_url: str) -> None:
    async def body(published: PublishMarkers, redis: Redis) -> None:
        run, _ = await published.unpublished([P])
        mark = await published.begin(P)
        await redis.hdel(KEY, str(P))
        await published.remember(P, run, mark)
        assert (await published.unpublished([P]))[1] == [P]

    check(redis_url, body)


def test_of_two_publications_at_once_the_later_one_counts(redis_url: str) -> None:
    async def body(published: PublishMarkers, _redis: Redis) -> None:
        run, _ = await published.unpublished([P])
        first, second = await published.begin(P), await published.begin(P)
        await published.remember(P, run, first)
        assert (await published.unpublished([P]))[1] == [P]
        await published.remember(P, run, second)
        assert (await published.unpublished([P]))[1] == []

    check(redis_url, body)


def test_a_server_that_has_become_a_replica_is_left(redis_url: str) -> None:
    """It remembers, by what its primary sends it, and its run id is what it was."""

    async def body(published: PublishMarkers, redis: Redis) -> None:
        async def connected() -> set[str]:
            return {each["id"] for each in await redis.client_list()}

        others = await connected()
        await published.unpublished([P])
        ours = await connected() - others
        await redis.replicaof("127.0.0.1", 1)
        try:
            with pytest.raises(RedisUnreachable, match="role"):
                await published.unpublished([P])
            assert ours
            assert not ours & await connected()
        finally:
            await redis.replicaof("NO", "ONE")
        await published.unpublished([P])

    check(redis_url, body)


def test_the_servers_clock_is_returned(redis_url: str) -> None:
    async def body(published: PublishMarkers, _redis: Redis) -> None:
        before = time.time_ns() // 1_000_000
        now = await published.now_ms()
        assert before - 1 <= now <= time.time_ns() // 1_000_000 + 1

    check(redis_url, body)


def test_a_clock_that_cannot_be_asked_is_unreachable() -> None:
    async def body() -> None:
        published = PublishMarkers("redis://127.0.0.1:1")
        try:
            await published.now_ms()
        finally:
            await published.close()

    with pytest.raises(RedisUnreachable):
        asyncio.run(body())
