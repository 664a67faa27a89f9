"""Describes topics: the offsets of each partition, and what open transactions hold back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.errors import TopicAuthorizationFailedError

from headstart.connections.kafka_connections import new_consumer
from headstart.kafka_producer import BrokerUnreachable
from topics.kafka import fetch_patch
from topics.kafka.admin import visible_copies
from topics.kafka.asking_again import ask_again

FETCH_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class TopicState:
    """A topic as the broker describes it; offsets by partition.

    `end`: the last stable offset, the exclusive end of readable committed records. `high`: the high
    watermark, if known; larger than `end` while a transaction is open. `copies`: of the partition
    that has the fewest; 0: unknown.
    """

    name: str
    partitions: int
    begin: Mapping[int, int]
    end: Mapping[int, int]
    high: Mapping[int, int] = field(default_factory=dict)
    copies: int = 0

    @property
    def held_back(self) -> dict[int, int]:
        """Return how many offsets lie behind an open transaction, for partitions that have one."""
        return {n: high - self.end[n] for n, high in self.high.items() if high > self.end[n]}


async def describe_topics(kafka: str, names: Iterable[str]) -> dict[str, TopicState]:
    """Return the state of the topics that exist.

    Raises `BrokerUnreachable`, also if the broker's ACLs refuse to read one of them.
    """
    wanted = set(names)
    return await ask_again(kafka, lambda: _describe(kafka, wanted))


async def _describe(kafka: str, names: AbstractSet[str]) -> dict[str, TopicState]:
    copies = await visible_copies(kafka, names)
    counts = {name: len(each) for name, each in copies.items()}
    if not counts:
        return {}
    fetch_patch.install()  # `_end_offsets` may have to fetch records
    consumer = new_consumer(
        kafka,
        enable_auto_commit=False,
        fetch_max_wait_ms=20,
        isolation_level=fetch_patch.ISOLATION,
    )
    try:
        await consumer.start()
        tps = [TopicPartition(name, n) for name, count in counts.items() for n in range(count)]
        begin = await consumer.beginning_offsets(tps)
        high = await high_watermarks(consumer, tps)  # before `end`, so that `high` is not too large
        end = await _end_offsets(consumer, begin)
        high = {tp: max(at, end[tp]) for tp, at in high.items()}
        return {
            name: TopicState(
                name,
                count,
                _by_partition(name, begin),
                _by_partition(name, end),
                _by_partition(name, high),
                min(copies[name]),
            )
            for name, count in counts.items()
        }
    except TopicAuthorizationFailedError as error:
        raise BrokerUnreachable(kafka, error) from error
    finally:
        await consumer.stop()


def _by_partition(name: str, offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {tp.partition: offset for tp, offset in offsets.items() if tp.topic == name}


async def high_watermarks(
    consumer: AIOKafkaConsumer, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the high watermarks of partitions, independent of the consumer's isolation level.

    aiokafka uses the level of its fetcher, so nothing may be fetched meanwhile.
    """
    fetcher = consumer._fetcher
    level, fetcher._isolation_level = fetcher._isolation_level, READ_UNCOMMITTED
    try:
        found: dict[TopicPartition, int] = await consumer.end_offsets(list(tps))
    finally:
        fetcher._isolation_level = level
    return found


async def _end_offsets(
    consumer: AIOKafkaConsumer, begin: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the last stable offsets of the partitions of `begin`, from fetch responses.

    In a list-offsets response the embedded broker (Tansu 0.6) counts only one record of the last
    batch.
    """
    end: dict[TopicPartition, int] = await consumer.end_offsets(list(begin))
    filled = [tp for tp in begin if end[tp] > begin[tp]]
    if filled:
        consumer.assign(filled)  # once: after a second call aiokafka's fetcher may not stop
    for tp in filled:
        consumer.seek(tp, end[tp] - 1)
    async with asyncio.timeout(FETCH_TIMEOUT_S):
        while unknown := [tp for tp in filled if consumer.highwater(tp) is None]:
            await consumer.getmany(*unknown, timeout_ms=200)
    return {**end, **{tp: max(end[tp], consumer.last_stable_offset(tp) or 0) for tp in filled}}
