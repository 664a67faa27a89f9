"""Readers and a publisher of a Redis Cluster in tests, and a judge of what the readers answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headstart.keys import redis_key
from headstart.thresholds.reader import AsyncThresholds, Threshold, Thresholds
from sinks.redis.thresholds import ThresholdPublisher
from tests.clusters import Cluster
from tests.patience import until
from topics.schema.json_schema import PublishedThreshold

PATIENT_S = 30.0
STALENESS_S = 1.0


def threshold(path: str, offset: int, tenant: str = "default") -> PublishedThreshold:
    workflow_type = path.partition("/")[0].removeprefix("workflow_type=")
    return PublishedThreshold(
        tenant=tenant, workflow_type=workflow_type, path=path, speculate=0.6, suggest=0.5,
        epoch=1, offset=offset, outcomes=3, learner="hops", at=1, deleted=False,
    )  # fmt: skip


def publish(url: str, *learned: PublishedThreshold) -> None:
    async def send() -> None:
        async with ThresholdPublisher(url, timeout_s=PATIENT_S) as publisher:
            await publisher.publish(learned)

    asyncio.run(send())


def types_of_masters(cluster: Cluster) -> list[str]:
    """Return one workflow type on each master."""
    found: dict[int, str] = {}
    for number in range(100):
        name = f"type{number}"
        found.setdefault(cluster.owner(redis_key("default", name)).port, name)
    assert len(found) == 3
    return list(found.values())


def queries(cluster: Cluster) -> int:
    """Return how many HMGET the masters have answered."""
    counts = (each.client.info("commandstats") for each in cluster.running_masters())
    return sum(each.get("cmdstat_hmget", {}).get("calls", 0) for each in counts)


class Published:
    """Publishes ever newer versions of one context, and knows when each was complete."""

    def __init__(self, url: str, path: str, *, timeout_s: float = PATIENT_S) -> None:
        self._url, self._path, self._timeout_s = url, path, timeout_s
        self.moments: list[float] = []
        """When the version of each offset, from 1, was published."""
        self._stopped = threading.Event()
        self.failures = 0

    async def _send(self, pause: threading.Lock) -> None:
        async with ThresholdPublisher(self._url, timeout_s=self._timeout_s) as publisher:
            while not self._stopped.is_set():
                with pause:
                    try:
                        await publisher.publish([threshold(self._path, len(self.moments) + 1)])
                        self.moments.append(time.monotonic())
                    except ConnectionError:
                        self.failures += 1
                await asyncio.sleep(0.01)

    @contextmanager
    def going_on(self) -> Iterator[threading.Lock]:
        """Publish within the block; none while the lock is held."""
        pause = threading.Lock()
        thread = threading.Thread(target=lambda: asyncio.run(self._send(pause)))
        thread.start()
        try:
            yield pause
        finally:
            self._stopped.set()
            thread.join(PATIENT_S)

    def least(self, begun: float) -> int:
        """Return the offset that an answer to a call at `begun` has at least, unless marked."""
        return sum(each < begun - STALENESS_S for each in list(self.moments))


class Reads:
    """Answers to calls in a loop; each must be recent enough, or marked."""

    def __init__(self, published: Published, get: Callable[[], Threshold]) -> None:
        self._published, self._get = published, get
        self.fresh = self.stale = 0
        self.wrong: list[tuple[int, Threshold]] = []
        self.newest = 0
        self._stopped = threading.Event()

    def one(self) -> Threshold:
        """Read once, and judge the answer."""
        least = self._published.least(time.monotonic())
        answer = self._get()
        offset = answer.version[1] if answer.version else 0
        if answer.stale:
            self.stale += 1
        elif offset < least:
            self.wrong.append((least, answer))
        else:
            self.fresh += 1
            self.newest = max(self.newest, offset)
        return answer

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.one()
            time.sleep(0.002)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Read within the block."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(PATIENT_S)

    def reach(self, offset: int) -> None:
        """Wait for an answer of this version that is not stale."""
        until(lambda: self.newest >= offset, seen=lambda: (self.newest, offset))


@contextmanager
def async_reader(url: str, **options: Any) -> Iterator[Callable[[], Threshold]]:
    """Yield a call of an asyncio reader that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENT_S)

    async def new() -> AsyncThresholds:
        return AsyncThresholds(url, **options)

    reader = run(new())
    try:
        yield lambda: run(reader.get(workflow_type="refund"))
    finally:
        run(reader.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENT_S)
        loop.close()


@contextmanager
def thread_reader(url: str, **options: Any) -> Iterator[Callable[[], Threshold]]:
    """Yield a call of a reader of threads."""
    with Thresholds(url, **options) as reader:
        yield lambda: reader.get(workflow_type="refund")
