"""A producer that compresses only large frames.

An aiokafka producer compresses everything or nothing, so there are two. Frames of one key keep
their order because only one of them is in flight at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from headstart import kafka_producer
from headstart.codecs import Compression
from headstart.connections.kafka_security import KafkaSecurity
from headstart.shipping.volatile_broker import BrokerLife, epoch_partitions, volatile_life

COMPRESS_BYTES: Final = 4096
"""Smaller frames are not compressed. Measured per event of 750 bytes with zstd: in frames of one
33 us, to 65 % of the size; of five 7 us, to 26 %; of twenty 5 us, to 17 %."""


class CompressingProducer:
    """One producer, or two: the size of a frame chooses one of them."""

    def __init__(
        self, plain: AIOKafkaProducer, compressing: AIOKafkaProducer | None = None
    ) -> None:
        self._plain, self._compressing = plain, compressing
        self.kinds = (False,) if compressing is None else (False, True)
        """The values of `compressed` that a record batch may have."""

    def compresses(self, size: int) -> bool:
        """Return whether a frame of this size in bytes is compressed."""
        return self._compressing is not None and size >= COMPRESS_BYTES

    def batch(self, *, compressed: bool) -> Any:
        """Return an empty record batch of the chosen producer."""
        return self._chosen(compressed).create_batch()

    async def send(self, batch: Any, topic: str, partition: int, *, compressed: bool) -> Any:
        """Send a record batch; return the future of its acknowledgement."""
        return await self._chosen(compressed).send_batch(batch, topic, partition=partition)

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return len(await self._plain.partitions_for(topic))

    def watch_partitions(self, topic: str, count: int, changed: Callable[[], None]) -> None:
        """Call `changed` once the topic is gone or has another number of partitions than `count`.

        Before that, the producers stop sending: batches not yet sent have a partition that may not
        be the one of their keys any more.
        """
        producers = [each for each in (self._plain, self._compressing) if each is not None]

        def stop() -> None:
            for each in producers:
                each._sender._sender_task.cancel()
            changed()

        check = _PartitionCheck(topic, count, stop)
        for each in producers:
            each.client.cluster.add_listener(check.of_producer())

    async def life(
        self, kafka: str, lost: Callable[[], None], security: KafkaSecurity | None = None
    ) -> BrokerLife | None:
        """Return the life of the volatile broker; None for another: see `volatile_life`."""
        producers = [each for each in (self._plain, self._compressing) if each is not None]
        return await volatile_life(kafka, producers, lost, security)

    async def epoch_partitions(
        self, kafka: str, security: KafkaSecurity | None = None
    ) -> int | None:
        """Return the partition count of the log epoch, None if unknown: see `epoch_partitions`.

        Raises `KafkaError` if an embedded broker's log has no epoch yet. Before that, topics may be
        missing, and could be created with a wrong partition count.
        """
        return await epoch_partitions(kafka, self._plain, security)

    async def end(self, timeout_s: float) -> None:
        """Stop; batches that are not sent within `timeout_s` seconds are discarded."""
        producers = [each for each in (self._plain, self._compressing) if each is not None]
        await asyncio.gather(*(kafka_producer.end_producer(each, timeout_s) for each in producers))

    def _chosen(self, compressed: bool) -> AIOKafkaProducer:
        return self._compressing if compressed else self._plain


class _PartitionCheck:
    """Calls `changed`, once, if metadata has another partition count of a topic, or lacks it again.

    A producer's metadata has no topic that it has not sent to yet.
    """

    def __init__(self, topic: str, count: int, changed: Callable[[], None]) -> None:
        self._topic, self._count, self._changed = topic, count, changed
        self._done = False

    def of_producer(self) -> Callable[[Any], None]:
        """Return a listener for the metadata of one producer."""
        known = False

        def check(cluster: Any) -> None:
            nonlocal known
            found = len(cluster.partitions_for_topic(self._topic) or ())
            known = known or found > 0
            if known and found != self._count and not self._done:
                self._done = True
                self._changed()

        return check


async def start_producer(
    kafka: str,
    compression: Compression | None = None,
    security: KafkaSecurity | None = None,
    **settings: Any,
) -> CompressingProducer:
    """Return a started producer; with `compression` it compresses large frames.

    `security`: default: the process's own. Raises aiokafka's `KafkaError`, or `OSError`, if no
    broker answers, and `UnusableSecurity`.
    """
    plain = await kafka_producer.start_producer(kafka, security, **settings)
    if compression is None:
        return CompressingProducer(plain)
    try:
        compressing = await kafka_producer.start_producer(
            kafka, security, compression_type=compression, **settings
        )
    except BaseException:
        await kafka_producer.end_producer(plain, 0.5)
        raise
    return CompressingProducer(plain, compressing)
