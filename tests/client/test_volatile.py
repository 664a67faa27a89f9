"""An embedded broker that is killed and started again: what it forgot comes again, in order."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from deploy.local import Addresses, Stack, StackConfig
from headstart.shipping.supervisor import ship_leftovers
from headstart.shipping.volatile_broker import GROUPS
from tests.client.spooling import EXECUTOR, Host, end, new_host
from tests.patience import until
from topics.catalogue import EVENTS
from topics.epoch import ensure_topics
from topics.kafka.admin import partition_counts
from topics.kafka.reader import topic_state

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]


class Broker:
    """The embedded broker of a test's own, and what its workers would commit."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.kafka = stack, stack.addresses.kafka

    def begin_log(self) -> None:
        asyncio.run(ensure_topics(self.kafka, partitions=3, known=[1], volatile=True))

    def kill(self) -> None:
        os.kill(self.stack.pids["broker"], signal.SIGKILL)
        until(self.stack.restart_services)

    def take_in_all(self) -> None:
        """Commit, for both groups, the offsets at which the log ends now."""
        asyncio.run(self._commit())

    async def _commit(self) -> None:
        ends = (await topic_state(self.kafka, EVENTS.name)).end
        for group in GROUPS:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.kafka, group_id=group, enable_auto_commit=False
            )
            await consumer.start()
            try:
                places = {TopicPartition(EVENTS.name, p): end for p, end in ends.items()}
                consumer.assign(list(places))
                await consumer.commit(places)
            finally:
                await consumer.stop()


@pytest.fixture
def unbegun(tmp_path: Path, addresses: Addresses) -> Iterator[Broker]:
    config = StackConfig(
        data=tmp_path / "stack",
        kafka="embedded",
        postgres=addresses.postgres,
        redis=addresses.redis,
    )
    with Stack(config) as stack:
        yield Broker(stack)


@pytest.fixture
def broker(unbegun: Broker) -> Broker:
    unbegun.begin_log()
    return unbegun


@pytest.fixture
def host(broker: Broker, tenant: str, tmp_path: Path) -> Iterator[Host]:
    made = new_host(broker.kafka, tenant, tmp_path)
    yield made
    end(made)


def test_a_killed_broker_s_log_is_sent_again_in_order(broker: Broker, host: Host) -> None:
    executor = host.start(3_000, pause=0.002)
    gone = host.start(300)
    gone.end()  # its events are acknowledged, and its process is no more
    for count in (600, 1_600):
        executor.until(count)
        broker.kill()
        broker.begin_log()
    executor.end()  # everything is acknowledged
    host.check()  # by the log that there is now: nothing was taken in
    assert len(host.emitted()) == 3_300
    assert len(host.spools()) == 2
    broker.take_in_all()
    until(lambda: not host.spools())


def test_processed_events_are_not_sent_again(broker: Broker, host: Host) -> None:
    executor = host.start(100_000, pause=0.005)
    host.start(200).end()
    until(lambda: len(host.spools()) == 2)

    def taken_in() -> bool:
        broker.take_in_all()  # again, as workers do: the other executor goes on
        return len(host.spools()) == 1

    until(taken_in, pause_s=0.5)  # the shipper knows
    executor.kill()
    broker.kill()
    broker.begin_log()
    until(lambda: len({event["origin"][0] for event in host.log()}) == 1)
    broker.take_in_all()
    until(lambda: not host.spools())


def test_a_successor_sends_what_a_killed_shipper_and_broker_had(broker: Broker, host: Host) -> None:
    host.start(400).end()
    os.kill(host.shipper(), signal.SIGKILL)
    assert len(host.spools()) == 1
    broker.kill()
    broker.begin_log()
    assert ship_leftovers(host.spool, broker.kafka)  # as `headstart up` does: no executor is left
    until(lambda: len({event["id"] for event in host.log()}) == 400)
    host.check()
    assert not ship_leftovers(host.spool, broker.kafka)
    broker.take_in_all()
    until(lambda: not host.spools())


def test_draining_waits_for_the_broker_only(broker: Broker, host: Host) -> None:
    host.mode = "none"
    executor = host.start(50)
    executor.until(50)
    executor.kill()
    host.drain()  # ends although no worker takes anything in
    assert host.spools()
    host.check()


@pytest.mark.parametrize("durable", [True, False])
def test_an_executor_that_is_there_first_creates_no_topic(
    unbegun: Broker, tenant: str, tmp_path: Path, durable: bool
) -> None:
    """The embedded broker would give it partitions of its own number."""
    host = Host(unbegun.kafka, tenant, tmp_path, begin=dict.fromkeys(range(3), 0))
    emitter = f"Emitter(kafka, durable={durable})"
    executor = host.start(20, program=EXECUTOR.replace("Emitter(kafka)", emitter))
    try:
        executor.until(20)
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:  # nothing may come of its attempts, one a second
            assert asyncio.run(partition_counts(unbegun.kafka, [EVENTS.name])) == {}
            time.sleep(0.2)
        unbegun.begin_log()
        executor.end()
        assert asyncio.run(partition_counts(unbegun.kafka, [EVENTS.name])) == {EVENTS.name: 3}
        assert {event["id"] for event in host.log()} == host.emitted()
    finally:
        end(host)
