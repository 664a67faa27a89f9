"""Reading thresholds: cache hits, misses next to a bare redis-py HMGET, changes, memory.

On a separate Redis. The published values are as large as those of the default learner. A change is
timed from before the publisher's call, in another process, to the first `get` that returns it.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson
import redis

from bench.support.measuring import echo, quantile, resident_mb
from deploy.local import Stack, StackConfig
from headstart.keys import context_paths, redis_key
from headstart.thresholds.reader import Thresholds
from sinks.redis.thresholds import ThresholdPublisher
from topics.schema.json_schema import Deviation, PublishedThreshold

TENANT: Final = "bench"
HITS, MISSES, CHANGES, CONTEXTS = 200_000, 2_000, 1_000, 10_000
CHANGE_EVERY_S: Final = 0.005
DEVIATION: Final = Deviation(0.0123, -0.0456, 0.0012, 0.0003, 0.0245, -0.5123, 0.2034, 123.0)
PATIENT_S: Final = 5.0


def run() -> dict[str, Any]:
    """Return the figures."""
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        config = StackConfig(data=Path(folder) / "stack", kafka="embedded")
        with Stack(config) as stack:
            url = stack.addresses.redis
            asyncio.run(_publish(url, [context(number) for number in range(CONTEXTS)]))
            echo(f"{CONTEXTS} contexts with all levels above them in Redis")
            figures = {**_hits(url), **_misses(url)}
            figures |= {**_changes(url), **_memory(url)}
    return {**figures, "contexts": CONTEXTS, "framing": "get() of a mapping, three levels"}


def context(number: int) -> dict[str, object]:
    """Return one of the contexts: 10 workflow types with 5 domains each, and a separate user."""
    return {
        "tenant": TENANT,
        "workflow_type": f"workflow-{number % 10}",
        "domain": f"domain-{number % 50}",
        "user_id": f"user-{number}",
    }


def learned(path: str, workflow_type: str, offset: int) -> PublishedThreshold:
    """Return a threshold as the service publishes it."""
    return PublishedThreshold(
        tenant=TENANT, workflow_type=workflow_type, path=path, speculate=0.8123, suggest=0.5123,
        epoch=1, offset=offset, outcomes=123, learner="hops", at=1_700_000_000_000,
        deviation=DEVIATION,
    )  # fmt: skip


async def _publish(url: str, contexts: Sequence[dict[str, object]]) -> None:
    paths = {(path, str(each["workflow_type"])) for each in contexts for path in _paths(each)}
    async with ThresholdPublisher(url, timeout_s=60.0) as publisher:
        await publisher.publish([learned(path, workflow, 1) for path, workflow in sorted(paths)])


def _paths(each: dict[str, object]) -> tuple[str, ...]:
    return context_paths(str(each["workflow_type"]), each.get)


def _hits(url: str) -> dict[str, float]:
    """Read a thousand contexts in random order, with the update subscriber running."""
    draw = random.Random(7)
    with Thresholds(url, timeout_s=PATIENT_S) as reader:
        contexts = [context(number) for number in range(1_000)]
        for each in contexts:
            reader.get(each)
        time.sleep(1.0)  # until they are subscribed
        clock, get = time.perf_counter, reader.get
        found, lookups = [], []
        plain = {_names(each): each for each in contexts}
        gc.freeze()  # excludes the benchmark's own objects from collections during a read
        for each in draw.choices(contexts, k=HITS):
            begun = clock()
            get(each)
            between = clock()
            plain[each["tenant"], each["workflow_type"], each["domain"], each["user_id"]]
            lookups.append(clock() - between)
            found.append(between - begun)
        stats = reader.stats()
    p50, p99 = quantile(found, 0.5) * 1e6, quantile(found, 0.99) * 1e6
    echo(f"mirror hit: p50 {p50:.2f} us, p99 {p99:.2f} us; {stats['misses']} misses")
    bare = quantile(lookups, 0.5) * 1e6
    echo(f"the same four keys looked up in a dict: p50 {bare:.2f} us")
    return {
        "mirror_p50_us": round(p50, 2),
        "dict_p50_us": round(bare, 2),
        "dict_p99_us": round(quantile(lookups, 0.99) * 1e6, 2),
        "mirror_p99_us": round(p99, 2),
        "mirror_hit_share": round(stats["hits"] / (stats["hits"] + stats["misses"]), 4),
    }


def _names(each: dict[str, object]) -> tuple[object, ...]:
    return tuple(each[name] for name in ("tenant", "workflow_type", "domain", "user_id"))


def _misses(url: str) -> dict[str, float]:
    """Time first reads of contexts, each next to a bare HMGET of the same chain by redis-py."""
    bare = redis.Redis.from_url(url)
    chains = [
        (redis_key(TENANT, str(each["workflow_type"])), _paths(each)[::-1])
        for each in map(context, range(MISSES))
    ]
    took: list[float] = []
    plain: list[float] = []
    with Thresholds(url, timeout_s=PATIENT_S) as reader:
        for number in range(10):  # the first of each hash also subscribes
            reader.get(context(number))
        time.sleep(0.5)
        clock = time.perf_counter
        for number in range(10, MISSES):
            key, fields = chains[number]
            each = context(number)
            begun = clock()
            reader.get(each)
            between = clock()
            bare.hmget(key, fields)
            plain.append(clock() - between)
            took.append(between - begun)
        misses = reader.stats()["misses"]
    bare.close()
    ours, theirs = statistics.median(took) * 1e6, statistics.median(plain) * 1e6
    echo(f"miss: {ours:.0f} us, bare HMGET {theirs:.0f} us (medians; {misses} misses)")
    return {
        "miss_p50_us": round(ours, 1),
        "miss_ratio": round(ours / theirs, 2),
        "bare_hmget_p50_us": round(theirs, 1),
    }


def _changes(url: str) -> dict[str, float]:
    """Time changes until they are read, next to a bare redis-py subscriber in its own process."""
    contexts = [context(number) for number in range(100)]
    with Thresholds(url, timeout_s=PATIENT_S) as reader:
        for each in contexts:
            reader.get(each)
        time.sleep(1.0)
        found, plain = _watch(url, reader, contexts)
    figures = {
        "staleness_p50_ms": quantile(found, 0.5),
        "staleness_p99_ms": quantile(found, 0.99),
        "bare_subscriber_p50_ms": quantile(plain, 0.5),
        "bare_subscriber_p99_ms": quantile(plain, 0.99),
    }
    figures = {name: round(seconds * 1e3, 2) for name, seconds in figures.items()}
    echo(f"change read, and received by a bare subscriber: {figures}")
    return figures


def _watch(
    url: str, reader: Thresholds, contexts: Sequence[dict[str, object]]
) -> tuple[list[float], list[float]]:
    """Return the seconds from each publication until it was read, and until a subscriber got it."""
    seen = dict.fromkeys(range(len(contexts)), (0, 0))
    found: list[float] = []
    began = time.monotonic_ns()
    spawn = multiprocessing.get_context("spawn")
    received: multiprocessing.Queue[list[float]] = spawn.Queue()
    subscriber = spawn.Process(target=_subscribe, args=(url, contexts, received))
    publisher = spawn.Process(target=_change, args=(url, len(contexts)))
    subscriber.start()
    publisher.start()
    try:
        while publisher.is_alive():
            for number, each in enumerate(contexts):
                version = reader.get(each).version
                if version and version > seen[number]:
                    if version[1] > began:
                        found.append((time.monotonic_ns() - version[1]) / 1e9)
                    seen[number] = version
            time.sleep(0.0002)
    finally:
        publisher.join(60)
    if publisher.exitcode or len(found) < CHANGES // 2:
        raise RuntimeError(f"{len(found)} of {CHANGES} changes were seen")
    plain = received.get(timeout=60)
    subscriber.join(60)
    return found, plain


def _subscribe(
    url: str, contexts: Sequence[dict[str, object]], received: multiprocessing.Queue[list[float]]
) -> None:
    """Receive the same announcements with redis-py alone."""
    found: list[float] = []
    with redis.Redis.from_url(url) as client, client.pubsub() as subscription:
        subscription.subscribe(*{redis_key(TENANT, str(e["workflow_type"])) for e in contexts})
        quiet_at = time.monotonic() + 60.0
        while time.monotonic() < quiet_at:
            message = subscription.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is not None:
                sent = orjson.loads(message["data"])[0]["offset"]
                found.append((time.monotonic_ns() - sent) / 1e9)
                quiet_at = time.monotonic() + 3.0
    received.put(found)


def _change(url: str, count: int) -> None:
    """Publish changes; the offset of each is the moment before it (monotonic ns)."""

    async def change() -> None:
        draw = random.Random(11)
        async with ThresholdPublisher(url, timeout_s=60.0) as publisher:
            for _ in range(CHANGES):
                await asyncio.sleep(CHANGE_EVERY_S)
                each = context(draw.randrange(count))
                path, workflow = _paths(each)[-1], str(each["workflow_type"])
                await publisher.publish([learned(path, workflow, time.monotonic_ns())])

    asyncio.run(change())


def _memory(url: str) -> dict[str, float]:
    """Measure the memory of ten thousand cached contexts in a separate process."""
    program = f"from bench.read import hold; print(hold({url!r}))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600
    )
    megabytes = float(ran.stdout)
    echo(f"{CONTEXTS} contexts: {megabytes:.1f} MB")
    return {"memory_10000_contexts_mb": round(megabytes, 1)}


def hold(url: str) -> float:
    """Return by how many MB this process grows with `CONTEXTS` contexts in its cache."""
    with Thresholds(url, timeout_s=PATIENT_S, mirror_limit=CONTEXTS) as reader:
        reader.get(context(0))
        time.sleep(1.0)
        before = resident_mb(os.getpid())
        for number in range(CONTEXTS):
            reader.get(context(number))
        gc.collect()
        after = resident_mb(os.getpid())
        if reader.stats()["contexts"] != CONTEXTS:
            raise RuntimeError("the mirror does not hold them all")
    return after - before
