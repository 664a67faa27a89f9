"""What Redis notes of the workers that learned partitions last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from sinks.connections import RedisUnreachable
from sinks.redis.last_owners import KEY, LastOwners, PartitionOwner

P = 7_101  # a partition that no other test has


def owner(epoch: int, offset: int, worker: str = "a", *, still: bool = True) -> PartitionOwner:
    return PartitionOwner(epoch, offset, 4, worker, still)


def check(redis_url: str, body: Callable[[LastOwners, Redis], Awaitable[None]]) -> None:
    async def run() -> None:
        owners, redis = LastOwners(redis_url), Redis.from_url(redis_url)
        try:
            await body(owners, redis)
        finally:
            await redis.hdel(KEY, str(P), str(P + 1))
            await owners.close()
            await redis.aclose()

    asyncio.run(run())


def test_a_late_writer_never_lowers_a_version(redis_url: str) -> None:
    async def body(owners: LastOwners, _redis: Redis) -> None:
        for noted, wanted in [
            (owner(9, 100), owner(9, 100)),
            (owner(9, 99, "b"), owner(9, 100)),
            (owner(8, 1_000, "b"), owner(9, 100)),
            (owner(9, 101, "b"), owner(9, 101, "b")),
            (owner(10, -1), owner(10, -1)),
        ]:
            await owners.note({P: noted})
            assert (await owners.read())[P] == wanted

    check(redis_url, body)


def test_of_one_version_the_worker_that_opened_the_partition_last_counts(redis_url: str) -> None:
    async def body(owners: LastOwners, _redis: Redis) -> None:
        await owners.note({P: owner(9, 5, "a")})
        await owners.note({P: owner(9, 5, "a", still=False)})
        assert not (await owners.read())[P].open
        await owners.note({P: owner(9, 5, "b")})
        await owners.note({P: owner(9, 5, "a", still=False)})  # arrives late
        assert (await owners.read())[P] == owner(9, 5, "b")

    check(redis_url, body)


def test_several_partitions_are_noted_at_once(redis_url: str) -> None:
    async def body(owners: LastOwners, _redis: Redis) -> None:
        await owners.note({P: owner(9, 5), P + 1: owner(9, 2**53)})
        await owners.note({P: owner(9, 4), P + 1: owner(10, 0)})
        found = await owners.read()
        assert (found[P], found[P + 1]) == (owner(9, 5), owner(10, 0))
        await owners.note({})

    check(redis_url, body)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"epoch":"x"}', b"7", b"\xff"])
def test_a_damaged_note_counts_as_none(redis_url: str, damage: bytes) -> None:
    async def body(owners: LastOwners, redis: Redis) -> None:
        await redis.hset(KEY, str(P), damage)
        assert P not in await owners.read()
        await owners.note({P: owner(1, 0)})
        assert (await owners.read())[P] == owner(1, 0)

    check(redis_url, body)


def test_a_redis_that_is_away_is_reported() -> None:
    async def run() -> None:
        owners = LastOwners("redis://127.0.0.1:1")
        with pytest.raises(RedisUnreachable):
            await owners.read()
        with pytest.raises(RedisUnreachable):
            await owners.note({P: owner(1, 0)})
        await owners.close()

    asyncio.run(run())
