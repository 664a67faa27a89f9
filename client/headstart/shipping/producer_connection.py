"""A producer that works: one that failed is ended, and another one takes its place.

A producer that reported any failure may have more of its batches stored than it knows, and its
successor numbers its own anew. So it is ended first, and what it had under way is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError

from headstart.codecs import Compression
from headstart.shipping.compressing_producer import CompressingProducer, start_producer
from headstart.shipping.volatile_broker import EVENTS, BrokerLife

log = logging.getLogger("headstart")

RETRY_S: Final = 1.0
STOP_S: Final = 2.0
"""How long a producer that failed may take to end."""
PARTITIONS_S: Final = 10.0
"""How long to ask over the one connection of a volatile log how many partitions a topic has."""
_LOST_STOP_S: Final = 0.1
"""The same where its broker is gone for good, so that nothing it still holds can arrive."""


class LiveProducer:
    """One producer, how many partitions its topic has, and what was given to it.

    `life`: which life of a broker that forgets its log when it ends; None for any other broker.
    """

    def __init__(self, producer: CompressingProducer, partitions: int) -> None:
        self.producer, self.partitions = producer, partitions
        self.broken = False
        self.stop_s = STOP_S
        self.life: BrokerLife | None = None
        self.under_way: set[asyncio.Future[Any]] = set()


class ProducerConnection:
    """Keeps a link to one topic."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        compression: Compression | None,
        client_id: str,
        where: str,
        *,
        lives: bool = False,
    ) -> None:
        """`where`: where events wait while no broker answers, for the log.

        `lives`: tell the lives of a broker that forgets apart.
        """
        self._lives = lives
        self._kafka, self.topic, self._where = kafka, topic, where
        self._compression, self._client_id = compression, client_id
        self._link: LiveProducer | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._away = self._broke = False

    async def link(self) -> LiveProducer:
        """Return a link that works; keeps trying, because events already wait."""
        while self._link is None or self._link.broken:
            await asyncio.gather(*self._ending)
            if self._broke or self._away:
                await asyncio.sleep(RETRY_S)
            try:
                self._link = await self._started()
            except Exception as error:  # an address that is none, too: others are to be served
                if not self._away:
                    self._away = True
                    why = type(error).__name__
                    if isinstance(error, UnknownTopicOrPartitionError) or not isinstance(
                        error, KafkaError | OSError
                    ):
                        why = f"{why}: {error}"
                    log.warning(
                        "no Kafka broker answers at %s (%s); events wait %s",
                        self._kafka,
                        why,
                        self._where,
                    )
            else:
                self._away = self._broke = False
        return self._link

    async def _started(self) -> LiveProducer:
        producer = await start_producer(
            self._kafka,
            compression=self._compression,
            client_id=self._client_id,
            max_batch_size=1_000_000,
            max_request_size=1_048_576,
            request_timeout_ms=30_000,
        )
        try:
            link = LiveProducer(producer, 0)
            # First: the embedded broker creates a topic that is asked for, with partitions of its
            # own number, so it is not asked before the service has created the topics.
            if self._lives:
                link.life = await producer.life(self._kafka, lambda: self._lost(link))
            elif self.topic == EVENTS:
                await producer.require_epoch(self._kafka)
            # Of a connection that was lost meanwhile nothing would ever come.
            limit_s = PARTITIONS_S if link.life else None
            link.partitions = await asyncio.wait_for(producer.partitions(self.topic), limit_s)
        except BaseException:
            await producer.end(STOP_S)
            raise
        return link

    def _lost(self, link: LiveProducer) -> None:
        link.stop_s = _LOST_STOP_S
        self.drop(link, KafkaConnectionError("the connection to the broker was lost"))

    def drop(self, link: LiveProducer, error: BaseException) -> None:
        """End a link that failed; what else it had under way fails with it."""
        if link.broken:
            return
        link.broken = self._broke = True
        if self._link is link:
            self._link = None
        log.warning("events wait %s, sending failed: %r", self._where, error)
        self._end(link)

    def _end(self, link: LiveProducer) -> None:
        async def end() -> None:
            await link.producer.end(link.stop_s)
            for future in list(link.under_way):
                if not future.done():
                    future.set_exception(KafkaError("the producer has ended"))

        task = asyncio.get_running_loop().create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Let go of the broker at once."""
        if self._link is not None:
            self._link.broken = True
            self._end(self._link)
            self._link = None
        await asyncio.gather(*self._ending)
