"""Topics read back from outside any group: nothing is committed, nobody is disturbed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import EVENTS
from topics.kafka import fetch_patch
from topics.kafka.admin import TopicsMissing, TopicState, describe_topics


class LogTruncated(LookupError):
    """The broker no longer has what was to be read next.

    `offset`: what that was; `begin`: where the log begins now, not after `offset` where it is a
    new log that has not come so far.
    """

    def __init__(self, topic: str, partition: int, offset: int, begin: int) -> None:
        super().__init__(topic, partition, offset, begin)  # as given: processes hand it on
        self.topic, self.partition, self.offset, self.begin = topic, partition, offset, begin

    def __str__(self) -> str:
        where = f"{self.topic}, partition {self.partition}: offset {self.offset} was to be read"
        if self.begin <= self.offset:
            return f"{where}, and the log has not come so far: it was begun anew. Try again"
        remedy = "Try again"
        if self.topic == EVENTS.name:
            remedy = (
                f"Begin there (--from-offset {self.partition}:{self.begin}), or read the archive "
                "in Postgres (--source archive)"
            )
        return f"{where}, and the log begins at {self.begin} now: retention took it. {remedy}"


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
    """Give a consumer of some partitions, each from an offset on.

    Only committed records are read, unless `isolation_level` says otherwise. Raises
    `BrokerUnreachable`, and `LogTruncated` where what is to be read next is gone, unless
    `auto_offset_reset` says where to go on then.
    """
    fetch_patch.install()
    # By default aiokafka would go on at the end, and nobody would know what was passed over.
    settings = {
        "auto_offset_reset": "none",
        "fetch_max_wait_ms": 200,
        "isolation_level": fetch_patch.ISOLATION,
        **settings,
    }
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False, **settings)
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
    isolation_level: str = fetch_patch.ISOLATION,
) -> AsyncGenerator[Any, None]:
    """Yield records (aiokafka's) from `begin` on, by partition: up to `end`, or without end.

    Offsets in `end` are exclusive. Raises `BrokerUnreachable`, and `LogTruncated` where retention
    is faster. Without an end nothing is promised to be there: it goes on with the oldest record.
    """
    wanted = {p for p in begin if end is None or begin[p] < end[p]}
    if not wanted:
        return
    settings = {"isolation_level": isolation_level}
    if end is None:
        settings["auto_offset_reset"] = "earliest"
    async with reading(kafka, topic, {p: begin[p] for p in wanted}, **settings) as consumer:
        while wanted:
            # Of these alone: what is behind the end of another may be gone, and nobody cares.
            unread = [TopicPartition(topic, partition) for partition in wanted]
            for tp, records in (await consumer.getmany(*unread, timeout_ms=500)).items():
                for record in records:
                    if end is None or record.offset < end[tp.partition]:
                        yield record
            if end is not None:
                await drop_finished(consumer, topic, wanted, end)
