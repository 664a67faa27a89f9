"""Readers and a publisher live on when Redis, and their files, have certificates of another CA."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from deploy.local import StackError
from deploy.local.secure.programs import redis_server
from headstart.keys import MODES, PUBLISHED
from headstart.thresholds.reader import AsyncThresholds, Threshold, Thresholds
from sinks.connections import RedisUnreachable, redis_client
from sinks.redis.thresholds import ThresholdPublisher
from tests.patience import PATIENCE_S
from tests.secure.tls_redis import KINDS, TlsRedis
from topics.schema.json_schema import PublishedThreshold

TIMEOUT_S = 10.0
REFUND = {"workflow_type": "refund"}


@pytest.fixture(params=KINDS)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TlsRedis]:
    try:
        redis_server()
    except StackError as error:
        pytest.skip(str(error))
    made = TlsRedis(tmp_path, request.param)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def threshold(offset: int) -> PublishedThreshold:
    return PublishedThreshold(
        tenant="default", workflow_type="refund", path="workflow_type=refund",
        speculate=offset / 100, suggest=0.5, epoch=1, offset=offset, outcomes=3, learner="hops",
        at=1, deleted=False,
    )  # fmt: skip


def test_replaced_certificates_need_no_restart(servers: TlsRedis) -> None:
    asyncio.run(rotate(servers))


async def rotate(servers: TlsRedis) -> None:
    """All clients are made once, and live through a certificate whose key is still the old one."""
    async with redis_client(servers.url) as client:
        await client.hset(MODES, PUBLISHED, "a run id")
    async with AsyncExitStack() as opened:
        url, limit = servers.url, {"timeout_s": TIMEOUT_S}
        of_threads = opened.enter_context(Thresholds(url, **limit))
        of_asyncio = await opened.enter_async_context(AsyncThresholds(url, **limit))
        publisher = await opened.enter_async_context(ThresholdPublisher(url, **limit))
        reads = (lambda: asyncio.to_thread(of_threads.get, REFUND), lambda: of_asyncio.get(REFUND))
        await publisher.publish([threshold(1)])
        for read in reads:
            await until_read(read, 1)
        servers.rotate()
        for names in ((), ("ca", "cert")):
            servers.issue("ca-1", *names)
            with pytest.raises(RedisUnreachable):
                await publisher.publish([threshold(2)])
            for read in reads:
                assert (await read()).speculate == 0.01
        servers.issue("ca-1", "key")
        await publisher.publish([threshold(2)])
        for read in reads:
            await until_read(read, 2)


async def until_read(read: Callable[[], Awaitable[Threshold]], offset: int) -> None:
    """Read until the answer is the one that was published last, confirmed by Redis."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await read()
            if found.speculate == offset / 100 and not found.stale:
                return
            await asyncio.sleep(0.05)
