"""Readers and a publisher of a Redis Cluster, and what holds for them whatever the transport."""

from __future__ import annotations

import asyncio
import threading
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


def threshold(path: str, offset: int, tenant: str = "default") -> PublishedThreshold:
    workflow_type = path.partition("/")[0].removeprefix("workflow_type=")
    return PublishedThreshold(
        tenant=tenant, workflow_type=workflow_type, path=path, speculate=0.6, suggest=0.5,
        epoch=1, offset=offset, outcomes=3, learner="hops", at=1, deleted=False,
    )  # fmt: skip


def publish(url: str, *learned: PublishedThreshold) -> int:
    """Publish some thresholds; return how many fields were written."""

    async def send() -> int:
        async with ThresholdPublisher(url, timeout_s=PATIENT_S) as publisher:
            return await publisher.publish(learned)

    return asyncio.run(send())


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


def check_one_round_trip(cluster: Cluster, reader_url: str, writer_url: str) -> None:
    """Fail unless one query answers for every level of a context, at each master."""
    names = types_of_masters(cluster)
    paths = [f"workflow_type={name}" for name in names]
    finer = [f"{path}/domain=retail/user_id=u7" for path in paths]
    publish(writer_url, *(threshold(each, 1) for each in (*paths, *finer)))
    with Thresholds(reader_url, staleness_s=0.0, timeout_s=PATIENT_S) as reader:
        before = queries(cluster)
        for name, path in zip(names, finer, strict=True):
            given = {"workflow_type": name, "domain": "retail"}
            assert reader.get(given, user_id="u7").level == path
            assert reader.get(given, user_id="another").level == f"workflow_type={name}"
        assert queries(cluster) - before == 2 * len(names)

    async def read() -> list[Threshold]:
        async with AsyncThresholds(reader_url, staleness_s=0.0, timeout_s=PATIENT_S) as other:
            gets = (other.get(workflow_type=n, domain="retail", user_id="u7") for n in names)
            return list(await asyncio.gather(*gets))

    before = queries(cluster)
    assert [each.level for each in asyncio.run(read())] == finer
    assert queries(cluster) - before == len(names)


def check_announcements(cluster: Cluster, reader_url: str, writer_url: str) -> None:
    """Fail unless what any master announces reaches a reader without a query."""
    names = types_of_masters(cluster)
    with Thresholds(reader_url, staleness_s=PATIENT_S, timeout_s=PATIENT_S) as reader:
        publish(writer_url, *(threshold(f"workflow_type={name}", 1) for name in names))
        for name in names:
            assert reader.get(workflow_type=name).version == (1, 1)
        for name in names:
            until_followed(cluster, redis_key("default", name))
        misses = reader.stats()["misses"]
        publish(writer_url, *(threshold(f"workflow_type={name}", 2) for name in names))
        for name in names:
            until(lambda: reader.get(workflow_type=name).version == (1, 2))  # noqa: B023
        assert reader.stats()["misses"] == misses
        assert reader.stats()["announcements"] >= len(names)


def until_followed(cluster: Cluster, key: str) -> None:
    """Wait until one reader follows a hash at its master."""
    until(lambda: cluster.owner(key).run("PUBSUB NUMSUB", key)[0][1] == 1)


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
