"""Topics that are given more partitions while everything runs: nothing stops, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewPartitions

from deploy.local import Addresses, Stack, StackConfig
from deploy.system import prepare
from headstart.kafka_producer import start_producer
from tests.patience import until
from topics.catalogue import DECISIONS, EVENTS
from topics.kafka.admin import admin_client, partition_counts

pytestmark = pytest.mark.integration

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(12)]
ADDED = 5
ADDED_WHAT = f"{EVENTS.name} has {ADDED} partitions"


@pytest.fixture
def own(broker: str, tmp_path: Path) -> Iterator[Addresses]:
    """Services with topics of two partitions, and no workers."""
    if broker != "apache":
        pytest.skip("the embedded broker cannot add partitions, and others are not ours to change")
    with Stack(StackConfig(data=tmp_path / "own", kafka=broker)) as stack:
        asyncio.run(prepare(stack.addresses, 2))
        yield stack.addresses


async def add(kafka: str) -> None:
    async with admin_client(kafka) as client:
        names = (EVENTS.name, DECISIONS.name)
        await client.create_partitions({name: NewPartitions(ADDED) for name in names})


async def send_beyond(kafka: str) -> None:
    """Send a record where a client of another kind might."""
    producer = await start_producer(kafka)
    try:
        await producer.send_and_wait(EVENTS.name, b"[]", key=b"t\x1ftype-0", partition=ADDED - 1)
    finally:
        await producer.stop()


def test_workers_and_producers_keep_to_the_epochs_count(
    own: Addresses,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored_at: Callable[[dict[str, Any], str], Any],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    headstart: Any,
    launch: Callable[..., Any],
    tenant: str,
) -> None:
    where = ("--kafka", own.kafka, "--postgres", own.postgres, "--redis", own.redis)
    stored, emitted = stored_at(vars(own), tenant), list[Event]()

    def start(name: str, instance: str) -> Any:
        return launch("worker", name, *where, "--data", "workers", "--instance", instance)

    def emit() -> None:
        events = [judged(tenant, name) for name in TYPES for _ in range(3)]
        ended = headstart("emit", write_events(events), "--kafka", own.kafka)
        assert ended.returncode == 0, ended.stderr
        emitted.extend(events)

    def is_exact() -> bool:
        ids = sorted(event["id"] for event in emitted)
        return stored.ids() == ids and stored.counted(*TYPES) == counts(emitted)

    workers = [start("thresholds", "0"), start("episodes", "0")]
    emit()
    stored.until(is_exact)
    asyncio.run(add(own.kafka))
    until(lambda: asyncio.run(partition_counts(own.kafka, [EVENTS.name])) == {EVENTS.name: ADDED})
    workers.append(start("thresholds", "1"))  # the group is assigned anew
    emit()
    stored.until(is_exact)
    assert workers[0].end(signal.SIGTERM) == 0
    emit()
    stored.until(is_exact)
    assert all(each.process.poll() is None for each in workers[1:])


def test_what_is_beyond_the_epochs_count_is_reported(own: Addresses, headstart: Any) -> None:
    where = ("--kafka", own.kafka, "--postgres", own.postgres, "--redis", own.redis)
    asyncio.run(add(own.kafka))
    until(lambda: asyncio.run(partition_counts(own.kafka, [EVENTS.name])) == {EVENTS.name: ADDED})
    doctor = headstart("doctor", *where, "--json")
    (note,) = (each for each in json.loads(doctor.stdout)["findings"] if ADDED_WHAT in each["what"])
    assert note["state"] == "note"
    assert "records in them: 0" in note["what"]
    verified = headstart("verify", *where, "--json", "--caught-up")
    assert verified.returncode == 0, verified.stderr

    asyncio.run(send_beyond(own.kafka))
    status = headstart("status", *where)
    assert status.returncode == 1
    assert f"{ADDED_WHAT}, and its log epoch was created for 2" in status.stdout + status.stderr
    assert "records in them: 1" in status.stdout + status.stderr
