"""Reads topics without a consumer group: no offsets are committed, no group rebalances."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from headstart.connections.kafka_connections import new_consumer
from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import EVENTS
from topics.kafka import fetch_patch
from topics.kafka.admin import TopicsMissing
from topics.kafka.topic_states import TopicState, describe_topics


class LogTruncated(LookupError):
    """The broker no longer has the next offset to read.

    `offset`: that offset; `begin`: the log's first offset now, at most `offset` if this is a new,
    shorter log.
    """

    def __init__(self, topic: str, partition: int, offset: int, begin: int) -> None:
        super().__init__(topic, partition, offset, begin)  # so that it can be pickled
        self.topic, self.partition, self.offset, self.begin = topic, partition, offset, begin

    def __str__(self) -> str:
        where = f"{self.topic}, partition {self.partition}: cannot read offset {self.offset}"
        if self.begin <= self.offset:
            return f"{where}: this is a new log, which has not reached it. Try again"
        remedy = "Try again"
        if self.topic == EVENTS.name:
            remedy = (
                f"Begin there (--from-offset {self.partition}:{self.begin}), or read the archive "
                "in Postgres (--source archive)"
            )
        return f"{where}: retention deleted it, the log begins at {self.begin} now. {remedy}"


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
    """Yield a consumer of the partitions in `begin`, each from its offset on.

    Reads only committed records by default (`isolation_level`). Raises `BrokerUnreachable`, and
    `LogTruncated` if the next offset is gone, unless `auto_offset_reset` is given.
    """
    fetch_patch.install()
    # aiokafka's default resets to the end and would skip records silently.
    settings = {
        "auto_offset_reset": "none",
        "fetch_max_wait_ms": 200,
        "isolation_level": fetch_patch.ISOLATION,
        **settings,
    }
    consumer = new_consumer(kafka, enable_auto_commit=False, **settings)
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
    except OffsetOutOfRangeError as error:
        raise await _truncated(kafka, consumer, error) from error
    finally:
        await consumer.stop()


async def _truncated(
    kafka: str, consumer: AIOKafkaConsumer, error: OffsetOutOfRangeError
) -> LogTruncated:
    [(tp, offset)] = error.args[0].items()
    try:
        begin = await consumer.beginning_offsets([tp])
    except (KafkaError, OSError) as away:
        raise BrokerUnreachable(kafka, away) from away
    return LogTruncated(tp.topic, tp.partition, offset, begin[tp])


async def drop_finished(
    consumer: AIOKafkaConsumer, topic: str, wanted: set[int], end: Mapping[int, int]
) -> None:
    """Remove partitions that were read to their end from `wanted`, and pause them."""
    for partition in list(wanted):
        tp = TopicPartition(topic, partition)
        # Compare positions: the last offsets may belong to no record.
        if await consumer.position(tp) >= end[partition]:
            wanted.discard(partition)
            consumer.pause(tp)


async def read_records(
    kafka: str,
    topic: str,
    begin: Mapping[int, int],
    end: Mapping[int, int] | None = None,
    isolation_level: str = fetch_patch.ISOLATION,
) -> AsyncGenerator[Any, None]:
    """Yield aiokafka records from the offsets `begin` to `end` (exclusive; None: without end).

    Raises `BrokerUnreachable`, and `LogTruncated` if retention deletes the next offset. Without an
    end it continues with the oldest record instead.
    """
    wanted = {p for p in begin if end is None or begin[p] < end[p]}
    if not wanted:
        return
    settings = {"isolation_level": isolation_level}
    if end is None:
        settings["auto_offset_reset"] = "earliest"
    async with reading(kafka, topic, {p: begin[p] for p in wanted}, **settings) as consumer:
        while wanted:
            # Only these: offsets beyond the end of the others may be deleted already.
            unread = [TopicPartition(topic, partition) for partition in wanted]
            for tp, records in (await consumer.getmany(*unread, timeout_ms=500)).items():
                for record in records:
                    if end is None or record.offset < end[tp.partition]:
                        yield record
            if end is not None:
                await drop_finished(consumer, topic, wanted, end)
