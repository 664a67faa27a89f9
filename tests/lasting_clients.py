"""Readers and a publisher of one threshold, made once, for tests in which logins are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from headstart.keys import MODES, PUBLISHED
from headstart.thresholds.reader import AsyncThresholds, Threshold, Thresholds
from sinks.connections import redis_client
from sinks.redis.thresholds import ThresholdPublisher
from tests.patience import PATIENCE_S
from topics.schema.json_schema import PublishedThreshold

_TIMEOUT_S = 10.0
_REFUND = {"workflow_type": "refund"}
Read = Callable[[], Awaitable[Threshold]]


class LastingClients(NamedTuple):
    """`reads`: read the threshold by threads and by asyncio."""

    publisher: ThresholdPublisher
    reads: tuple[Read, Read]


@asynccontextmanager
async def lasting_clients(url: str) -> AsyncIterator[LastingClients]:
    """Note in Redis that modes are published, and open the clients."""
    async with redis_client(url) as client:
        await client.hset(MODES, PUBLISHED, "a run id")
    async with AsyncExitStack() as opened:
        of_threads = opened.enter_context(Thresholds(url, timeout_s=_TIMEOUT_S))
        of_asyncio = await opened.enter_async_context(AsyncThresholds(url, timeout_s=_TIMEOUT_S))
        publisher = await opened.enter_async_context(ThresholdPublisher(url, timeout_s=_TIMEOUT_S))
        yield LastingClients(
            publisher,
            (lambda: asyncio.to_thread(of_threads.get, _REFUND), lambda: of_asyncio.get(_REFUND)),
        )


def numbered(offset: int) -> PublishedThreshold:
    """Return the threshold of a version; `speculate` is a hundredth of its offset."""
    return PublishedThreshold(
        tenant="default", workflow_type="refund", path="workflow_type=refund",
        speculate=offset / 100, suggest=0.5, epoch=1, offset=offset, outcomes=3, learner="hops",
        at=1, deleted=False,
    )  # fmt: skip


async def until_read(read: Read, offset: int) -> None:
    """Read until the answer is the one that was published last, confirmed by Redis."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await read()
            if found.speculate == offset / 100 and not found.stale:
                return
            await asyncio.sleep(0.05)
