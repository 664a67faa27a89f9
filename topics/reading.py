"""Topics read back from outside any group: nothing is committed, nobody is disturbed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from headstart.producing import BrokerUnreachable
from topics.admin import TopicsMissing, TopicState, describe_topics


async def topic_state(kafka: str, topic: str) -> TopicState:
    """Return a topic's partitions and offsets. Raises `BrokerUnreachable`, `TopicsMissing`."""
    states = await describe_topics(kafka, [topic])
    if topic not in states:
        raise TopicsMissing(kafka, [topic])
    return states[topic]


@asynccontextmanager
async def reading(
    kafka: str, topic: str, begin: Mapping[int, int], **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """Give a consumer of some partitions, each from an offset on. Raises `BrokerUnreachable`."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, fetch_max_wait_ms=200, **settings
    )
    try:
        await consumer.start()
    except (KafkaError, OSError) as error:
        await consumer.stop()
        raise BrokerUnreachable(kafka, error) from error
    try:
        consumer.assign([TopicPartition(topic, partition) for partition in begin])
        for partition, offset in begin.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        yield consumer
    finally:
        await consumer.stop()


async def drop_finished(
    consumer: AIOKafkaConsumer, topic: str, wanted: set[int], end: Mapping[int, int]
) -> None:
    """Take partitions that were read to their end out of `wanted`, and fetch them no more."""
    for partition in list(wanted):
        tp = TopicPartition(topic, partition)
        # Positions, not records: the last offsets may belong to no record.
        if await consumer.position(tp) >= end[partition]:
            wanted.discard(partition)
            consumer.pause(tp)


async def read_records(
    kafka: str,
    topic: str,
    begin: Mapping[int, int],
    end: Mapping[int, int] | None = None,
) -> AsyncGenerator[Any, None]:
    """Yield records (aiokafka's) from `begin` on, by partition: up to `end`, or without end.

    Offsets in `end` are exclusive. Raises `BrokerUnreachable`.
    """
    wanted = {p for p in begin if end is None or begin[p] < end[p]}
    if not wanted:
        return
    async with reading(kafka, topic, {p: begin[p] for p in wanted}) as consumer:
        while wanted:
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                for record in records:
                    if end is None or record.offset < end[tp.partition]:
                        yield record
            if end is not None:
                await drop_finished(consumer, topic, wanted, end)
