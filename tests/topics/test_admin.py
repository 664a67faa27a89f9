"""Topics on a real broker: made once, described truly, read back within bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import InvalidReplicationFactorError, RequestTimedOutError

from headstart.kafka_producer import start_producer
from topics.catalogue import Topic
from topics.kafka.admin import (
    BrokerUnreachable,
    TopicsMissing,
    admin_client,
    create_topics,
    delete_topics,
    partition_counts,
)
from topics.kafka.groups import GroupInUse, committed_offsets, delete_groups
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import describe_topics

pytestmark = pytest.mark.integration


@pytest.fixture
def topic() -> Topic:
    """A topic of this test's own."""
    return Topic(
        name=f"test.{uuid4().hex}", holds="", key="", partitioned=True, cleanup="delete",
        retention_ms=86_400_000,
    )  # fmt: skip


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


async def produce(kafka: str, topic: str, partition: int, *values: bytes) -> None:
    """Write one record batch."""
    producer = await start_producer(kafka)
    try:
        batch = producer.create_batch()
        for value in values:
            batch.append(key=b"k", value=value, timestamp=None)
        batch.close()
        await (await producer.send_batch(batch, topic, partition=partition))
    finally:
        await producer.stop()


async def read(
    kafka: str, topic: str, begin: Mapping[int, int], end: Mapping[int, int]
) -> dict[int, list[tuple[int, bytes]]]:
    found: dict[int, list[tuple[int, bytes]]] = {}
    async for record in read_records(kafka, topic, begin, end):
        found.setdefault(record.partition, []).append((record.offset, record.value))
    return found


def test_creating_twice_creates_once(kafka: str, topic: Topic) -> None:
    single = Topic(topic.name + ".single", "", "", partitioned=False, cleanup="compact")

    async def run() -> None:
        wanted = (topic, single)
        assert await create_topics(kafka, 3, topics=wanted) == [topic.name, single.name]
        assert await create_topics(kafka, 3, topics=wanted) == []
        states = await describe_topics(kafka, [topic.name, single.name, "test.no-such-topic"])
        assert {name: state.partitions for name, state in states.items()} == {
            topic.name: 3,
            single.name: 1,
        }

    asyncio.run(run())


def test_fenced_brokers_are_waited_for(
    kafka: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy broker that reports too late is fenced, and back with its next report."""
    fenced = "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
    reasons, real = [fenced, fenced], AIOKafkaAdminClient.create_topics

    async def refused(client: AIOKafkaAdminClient, topics: list[NewTopic]) -> Any:
        if not reasons:
            return await real(client, topics)
        code = InvalidReplicationFactorError.errno
        return SimpleNamespace(topic_errors=[(topics[0].name, code, reasons.pop())])

    monkeypatch.setattr(AIOKafkaAdminClient, "create_topics", refused)
    assert asyncio.run(create_topics(kafka, 3, topics=[topic])) == [topic.name]
    assert reasons == []
    reasons.append("Replication factor: 3 larger than available brokers: 1.")
    with pytest.raises(InvalidReplicationFactorError, match="larger than"):
        asyncio.run(create_topics(kafka, 3, 3, [replace(topic, name=f"{topic.name}.copies")]))


def test_a_topic_is_new_although_its_request_timed_out(
    kafka: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a log that begins again would keep its epoch."""
    real, lost = AIOKafkaAdminClient.create_topics, []

    async def answers_late(client: AIOKafkaAdminClient, topics: list[NewTopic]) -> Any:
        response = await real(client, topics)
        if not lost:
            lost.append(response)
            raise RequestTimedOutError
        return response

    monkeypatch.setattr(AIOKafkaAdminClient, "create_topics", answers_late)
    assert asyncio.run(create_topics(kafka, 3, topics=[topic])) == [topic.name]
    assert lost


def test_creating_again_never_alters_what_is_there(kafka: str, topic: Topic) -> None:
    async def run() -> None:
        await create_topics(kafka, 3, topics=[topic])
        assert await create_topics(kafka, 5, topics=[topic]) == []
        assert (await topic_state(kafka, topic.name)).partitions == 3

    asyncio.run(run())


def test_looking_at_a_topic_does_not_create_it(kafka: str, topic: Topic) -> None:
    async def run() -> list[str]:
        assert await describe_topics(kafka, [topic.name]) == {}
        with pytest.raises(TopicsMissing, match=topic.name):
            await topic_state(kafka, topic.name)
        async with admin_client(kafka) as client:
            return list(await client.list_topics())

    assert topic.name not in asyncio.run(run())


def test_the_message_of_missing_topics_names_them_and_the_remedy() -> None:
    message = str(TopicsMissing("broker:9092", ["b", "a"]))
    assert message.startswith("missing on the broker at broker:9092: a, b.")
    assert "`headstart topics create`" in message


def test_offsets_are_those_of_every_record_also_of_a_batch_of_several(
    kafka: str, topic: Topic
) -> None:
    async def run() -> None:
        await create_topics(kafka, 2, topics=[topic])
        empty = await topic_state(kafka, topic.name)
        assert (empty.begin, empty.end) == ({0: 0, 1: 0}, {0: 0, 1: 0})
        await produce(kafka, topic.name, 1, b"a", b"b", b"c")
        assert (await topic_state(kafka, topic.name)).end == {0: 0, 1: 3}
        await produce(kafka, topic.name, 1, b"d", b"e")
        state = await topic_state(kafka, topic.name)
        assert (state.begin, state.end) == ({0: 0, 1: 0}, {0: 0, 1: 5})

    asyncio.run(run())


def test_reading_is_bounded_on_both_sides(kafka: str, topic: Topic) -> None:
    async def run() -> None:
        await create_topics(kafka, 3, topics=[topic])
        await produce(kafka, topic.name, 0, *[b"a%d" % n for n in range(5)])
        await produce(kafka, topic.name, 2, *[b"c%d" % n for n in range(4)])
        everything = await read(kafka, topic.name, {0: 0, 1: 0, 2: 0}, {0: 5, 1: 0, 2: 4})
        assert everything == {
            0: [(n, b"a%d" % n) for n in range(5)],
            2: [(n, b"c%d" % n) for n in range(4)],
        }
        some = await read(kafka, topic.name, {0: 1, 2: 3}, {0: 3, 2: 4})
        assert some == {0: [(1, b"a1"), (2, b"a2")], 2: [(3, b"c3")]}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("begin", "end"), [({}, {}), ({0: 0}, {0: 0}), ({0: 7}, {0: 7}), ({0: 9}, {0: 7})]
)
def test_reading_an_empty_range_sends_no_request(
    begin: dict[int, int], end: dict[int, int], closed_port: str
) -> None:
    assert asyncio.run(read(closed_port, "any", begin, end)) == {}


def test_reading_without_an_end_goes_on(kafka: str, topic: Topic) -> None:
    async def run() -> list[bytes]:
        await create_topics(kafka, 1, topics=[topic])
        await produce(kafka, topic.name, 0, b"a")
        values: list[bytes] = []
        records: Any = read_records(kafka, topic.name, {0: 0})
        async for record in records:
            values.append(record.value)
            if len(values) == 2:
                break
            await produce(kafka, topic.name, 0, b"b")
        await records.aclose()
        return values

    assert asyncio.run(run()) == [b"a", b"b"]


def test_a_group_without_offsets_has_committed_nothing(kafka: str, topic: Topic) -> None:
    async def run() -> dict[int, int]:
        await create_topics(kafka, 2, topics=[topic])
        return await committed_offsets(kafka, f"group-{uuid4().hex}", topic.name, 2)

    assert asyncio.run(run()) == {0: 0, 1: 0}


@pytest.mark.parametrize(
    "ask",
    [
        lambda kafka: create_topics(kafka, 1, topics=[]),
        lambda kafka: describe_topics(kafka, ["any"]),
        lambda kafka: topic_state(kafka, "any"),
        lambda kafka: read(kafka, "any", {0: 0}, {0: 1}),
    ],
    ids=["create", "describe", "state", "read"],
)
def test_no_broker_is_named_with_its_address_and_the_remedy(ask: Any, closed_port: str) -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        asyncio.run(ask(closed_port))
    message = str(caught.value)
    assert closed_port in message
    assert "`headstart up`" in message
    assert "HEADSTART_KAFKA" in message
    assert "\n" not in message


def test_topics_are_deleted_and_others_stay(kafka: str, topic: Topic) -> None:
    other = replace(topic, name=f"{topic.name}.other")

    async def run() -> None:
        await create_topics(kafka, 2, topics=[topic, other])
        assert await delete_topics(kafka, [topic.name, "test.no-such-topic"]) == [topic.name]
        found = await partition_counts(kafka, [topic.name, other.name])
        assert found == {other.name: 2}

    asyncio.run(run())


@pytest.mark.slow  # for Apache Kafka, which has static members
def test_a_group_is_deleted_once_it_has_no_member(kafka: str, topic: Topic) -> None:
    """Else a static member that comes again within its session has its old partitions only."""

    async def run() -> None:
        await create_topics(kafka, 2, topics=[topic])
        consumer = AIOKafkaConsumer(
            topic.name, bootstrap_servers=kafka, group_id=topic.name, session_timeout_ms=6_000
        )
        await consumer.start()
        try:
            await consumer.getmany(timeout_ms=200)
            with pytest.raises(GroupInUse, match="stop them"):
                await delete_groups(kafka, [topic.name], 0.0)
        finally:
            await consumer.stop()
        await delete_groups(kafka, [topic.name, "test.no-such-group"], 20.0)

    asyncio.run(run())
