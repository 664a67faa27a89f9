"""From the start of a threshold worker to its first threshold: an empty table, and a full one.

The full table is rows of the default learner in the changelog, none on the worker's own disk; every
partition then has one event to learn from. The clock runs from the worker's start until Redis has
the threshold of each of them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from redis import Redis

from agents.producer import BatchProducer
from bench.support.measuring import (
    PARTITIONS,
    Running,
    echo,
    fresh_stack,
    wait_until,
    worker_environment,
)
from bench.support.repeating import repeated
from deploy.local import Addresses
from deploy.system import prepare
from headstart.keys import event_key, redis_key
from learners.policy import spec
from learners.registry import policy
from processing.records.partitioner import partition_for
from processing.state.counters import FIELDS
from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    TaskStateRow,
    context_key,
    encode_context,
    encode_partition,
)
from topics.catalogue import CHANGELOG, EVENTS, THRESHOLDS_GROUP

REPEAT: Final = 5
AT_ONCE: Final = 15_000
TENANT: Final = "bench"

Row = tuple[bytes, bytes]


def run(kafka: str, count: int = 1_000_000, repeat: int = REPEAT) -> dict[str, Any]:
    """Return the seconds to the first threshold, with no rows and with `count`."""

    def both(number: int) -> dict[str, float]:
        found = {"empty_s": _started(kafka, 0), "restored_s": _started(kafka, count)}
        echo(f"round {number + 1}, {count:,} rows: {found}")
        return found

    return {
        **repeated(both, repeat),
        "rows": count,
        "framing": f"process start to {PARTITIONS} partitions' first thresholds in Redis; rows of "
        "the default learner, from the changelog; the broker has had a group before",
        "broker": kafka,
    }


def _started(kafka: str, rows: int) -> float:
    with fresh_stack(kafka) as (addresses, folder):
        names = _workflow_types()
        asyncio.run(_fill(addresses, names, rows))
        begun = time.monotonic()
        argv = [sys.executable, "-P", "-m", "cli", "worker", "thresholds"]
        environment = worker_environment(addresses, folder / "agent")
        with (
            Running(Path(folder), "agent", argv, environment),
            Redis.from_url(addresses.redis) as redis,
        ):
            wait_until(lambda: all(_served(redis, name) for name in names), every_s=0.02)
            return round(time.monotonic() - begun, 2)


def _workflow_types() -> list[str]:
    """Return a workflow type for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        name = f"workflow-{number}"
        found.setdefault(partition_for(TENANT, name, PARTITIONS), name)
        number += 1
    return [found[partition] for partition in range(PARTITIONS)]


def _served(redis: Any, name: str) -> bool:
    value = redis.hget(redis_key(TENANT, name), f"workflow_type={name}")
    return value is not None and orjson.loads(value)["offset"] >= 1


async def _fill(addresses: Addresses, names: Sequence[str], rows: int) -> None:
    """Two events a partition, the first of them applied and committed; rows in the changelog."""
    epoch = (await prepare(addresses, PARTITIONS)).number
    events = AIOKafkaProducer(bootstrap_servers=addresses.kafka)
    await events.start()
    for offset in range(2):
        for partition, name in enumerate(names):
            await events.send_and_wait(
                EVENTS.name, _event(name, offset), event_key(TENANT, name), partition
            )
    await events.stop()
    if not rows:
        await _commit(addresses, "bench")
        return
    producer = BatchProducer(addresses.kafka)
    await producer.start()
    for partition, name in enumerate(names):
        for chunk in _rows(name, epoch, rows // PARTITIONS):
            await producer.send_rows(CHANGELOG.name, partition, chunk)
    await producer.stop()
    await _commit(addresses, THRESHOLDS_GROUP)


async def _commit(addresses: Addresses, group: str) -> None:
    """Commit the first event, because a broker's first group takes seconds."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=addresses.kafka, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    tps = [TopicPartition(EVENTS.name, partition) for partition in range(PARTITIONS)]
    consumer.assign(tps)
    await consumer.commit(dict.fromkeys(tps, 1))
    await consumer.stop()


def _event(name: str, number: int) -> bytes:
    return orjson.dumps(
        {
            "id": f"00000000-0000-4000-8000-{number:012x}",
            "event_type": "task_complete",
            "tenant": TENANT,
            "workflow_type": name,
            "workflow_id": "run",
            "task_id": str(number),
            "user_id": "user-0",
            "timestamp": time.time_ns() // 1_000_000,
            "confidence": 0.9,
            "data": {"context": {"domain": "retail"}, "prediction": {"was_correct": True}},
        }
    )


def _rows(name: str, epoch: int, count: int) -> Iterator[list[Row]]:
    """Yield the rows of one partition, its own last: what commits of offset 0 would have left."""
    now = time.time_ns() // 1_000_000
    learner = policy("default")
    context = ContextRow(
        epoch, 0, now, 1, 0, 0, learner.version, spec(learner), learner.initial(), 400.0, 600.0,
        (0,) * (len(FIELDS) - 3),
    )  # fmt: skip
    row = encode_context(context)
    above = [f"workflow_type={name}", f"workflow_type={name}/domain=retail"]
    paths = [*above, *(f"{above[1]}/user_id=user-{n}" for n in range(count - len(above)))]
    keys = [context_key(TENANT, path) for path in paths]
    for begin in range(0, count, AT_ONCE):
        yield [(key, row) for key in keys[begin : begin + AT_ONCE]]
    yield [(PARTITION_KEY, encode_partition(TaskStateRow(clock=now), epoch, 0))]
