"""Topics that are given more partitions while everything runs: nothing stops, nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewPartitions

from deploy.system import System
from headstart.kafka_producer import start_producer
from tests.patience import PATIENCE_S, until
from tests.secured import everything_allowed, stack_config
from topics.catalogue import DECISIONS, EVENTS
from topics.kafka.admin import admin_client, partition_counts

pytestmark = pytest.mark.integration

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(12)]
ADDED = 5


@pytest.fixture
def own(broker: str, messages: list[str], tmp_path: Path) -> Iterator[System]:
    if broker != "apache":
        pytest.skip("the embedded broker cannot add partitions, and others are not ours to change")
    config = stack_config(data=tmp_path / "own", kafka=broker)
    with System(config, partitions=2, echo=messages.append) as running:
        yield running


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
    own: System,
    messages: list[str],
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored_at: Callable[[dict[str, Any], str], Any],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    headstart: Any,
    tenant: str,
) -> None:
    at = own.addresses
    where = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
    stored, emitted = stored_at(vars(at), tenant), list[Event]()

    def emit() -> None:
        events = [judged(tenant, name) for name in TYPES for _ in range(3)]
        ended = headstart("emit", write_events(events), "--kafka", at.kafka)
        assert ended.returncode == 0, ended.stderr
        emitted.extend(events)

    def is_exact() -> bool:
        ids = sorted(event["id"] for event in emitted)
        return stored.ids() == ids and stored.counted(*TYPES) == counts(emitted)

    emit()
    stored.until(is_exact)
    with everything_allowed(own.data):
        asyncio.run(add(at.kafka))
    until(lambda: asyncio.run(partition_counts(at.kafka, [EVENTS.name])) == {EVENTS.name: ADDED})
    emit()
    stored.until(is_exact)
    assert own.supervisor is not None
    own.supervisor.halt()
    own.supervisor.resume()  # the group is assigned anew, by workers that know five partitions
    emit()
    until(is_exact, meanwhile=own.check, seen=lambda: messages)  # `check` starts the workers
    assert not [line for line in messages if "exit" in line]

    doctor = headstart("doctor", *where, "--data", own.data, "--json")
    (warning,) = (
        each for each in json.loads(doctor.stdout)["findings"] if EVENTS.name in each["what"]
    )
    assert warning["level"] == "warning"
    assert f"{EVENTS.name} has 5 partitions" in warning["what"]
    assert "records in them: 0" in warning["what"]

    asyncio.run(send_beyond(at.kafka))
    status = headstart("status", *where, "--data", own.data)
    assert status.returncode == 1
    assert "records in them: 1" in status.stdout + status.stderr
    assert own.drain(PATIENCE_S), "what nobody reads is not waited for"
    verified = headstart("verify", *where, "--json", "--caught-up")
    assert verified.returncode == 0, verified.stderr
