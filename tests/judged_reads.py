"""Reads in a loop while a Redis Cluster changes; each answer is recent enough, or marked as stale.

The tests of clusters in plain text, over TLS and with elections differ in what happens meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from headstart.keys import redis_key
from headstart.thresholds.reader import Threshold
from sinks.redis.thresholds import ThresholdPublisher
from tests.cluster_reads import PATIENT_S, threshold, until_followed
from tests.clusters import Cluster
from tests.patience import until

STALENESS_S: Final = 1.0
KEY: Final = redis_key("default", "refund")
PATH: Final = "workflow_type=refund"
ReaderKind = Callable[..., AbstractContextManager[Callable[[], Threshold]]]
"""`thread_reader` or `async_reader` of `tests.cluster_reads`."""


class Published:
    """Publishes ever newer versions of one context, and knows when each was complete."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        self.moments: list[float] = []
        """When the version of each offset, from 1, was published."""
        self.failures = 0
        self.pause = threading.Lock()
        """While it is held, nothing is published."""
        self._stopped = threading.Event()

    async def _send(self) -> None:
        async with ThresholdPublisher(self._url, timeout_s=self._timeout_s) as publisher:
            while not self._stopped.is_set():
                with self.pause:
                    try:
                        await publisher.publish([threshold(PATH, len(self.moments) + 1)])
                        self.moments.append(time.monotonic())
                    except ConnectionError:
                        self.failures += 1
                await asyncio.sleep(0.01)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Publish within the block."""
        thread = threading.Thread(target=lambda: asyncio.run(self._send()))
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(PATIENT_S)

    def least(self, begun: float) -> int:
        """Return the offset that an answer to a call at `begun` has at least, unless marked."""
        return sum(each < begun - STALENESS_S for each in list(self.moments))


class Reads:
    """Answers to calls in a loop; each must be recent enough, or marked."""

    def __init__(self, published: Published, get: Callable[[], Threshold]) -> None:
        self.published, self._get = published, get
        self.newest = self.stale = 0
        self.wrong: list[tuple[int, Threshold]] = []
        """What was older than it may be, and the offset that it had at least to have."""
        self._stopped = threading.Event()

    def _read(self) -> None:
        least = self.published.least(time.monotonic())
        answer = self._get()
        offset = answer.version[1] if answer.version else 0
        if answer.stale:
            self.stale += 1
        elif offset < least:
            self.wrong.append((least, answer))
        else:
            self.newest = max(self.newest, offset)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._read()
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

    def reach_newer(self) -> None:
        """Wait for an answer that is not stale, of a version that is not yet published."""
        offset = len(self.published.moments) + 5
        until(lambda: self.newest >= offset, seen=lambda: (self.newest, offset))


@contextmanager
def reading(
    kind: ReaderKind,
    reader_url: str,
    writer_url: str,
    *,
    timeout_s: float = PATIENT_S,
    publish_timeout_s: float = PATIENT_S,
) -> Iterator[Reads]:
    """Publish and read within the block, which begins when some versions were read.

    Fails after the block if an answer was older than it may be, and not marked as stale.
    """
    published = Published(writer_url, publish_timeout_s)
    with (
        kind(reader_url, staleness_s=STALENESS_S, timeout_s=timeout_s) as get,
        published.going_on(),
    ):
        reads = Reads(published, get)
        with reads.going_on():
            reads.reach_newer()
            yield reads
    assert not reads.wrong


def read_while_a_slot_moves(
    cluster: Cluster, kind: ReaderKind, reader_url: str, writer_url: str
) -> None:
    """Read until the slot of a context is on another master, and is followed there."""
    target = next(each for each in cluster.masters if each is not cluster.owner(KEY))
    with reading(kind, reader_url, writer_url) as reads:
        cluster.begin_move(KEY, target)
        reads.reach_newer()
        cluster.move_keys(KEY, target)
        reads.reach_newer()
        cluster.end_move(KEY, target)
        until_followed(cluster, KEY)
        reads.reach_newer()
    assert cluster.owner(KEY) is target
    assert not reads.published.failures


def read_while_a_master_dies(
    cluster: Cluster, kind: ReaderKind, reader_url: str, writer_url: str
) -> None:
    """Read until a replica serves a context in place of its master."""
    with reading(kind, reader_url, writer_url) as reads:
        with reads.published.pause:  # a write that no replica has would be lost
            cluster.fail_over(KEY)
        reads.reach_newer()
