"""Keeps a working Kafka producer: one that failed is stopped and replaced.

After any failure the broker may have stored more of a producer's batches than it reported, and its
successor restarts the sequence numbers. So the failed one is stopped first, and its batches in
flight are sent again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError

from headstart.codecs import Compression
from headstart.connections.kafka_errors import kafka_trouble
from headstart.connections.kafka_security import KafkaSecurity
from headstart.connections.own_security import security_of_profile
from headstart.shipping.compressing_producer import CompressingProducer, start_producer
from headstart.shipping.volatile_broker import DECISIONS, EVENTS, BrokerLife, LogNotReady

log = logging.getLogger("headstart")

RETRY_S: Final = 1.0
STOP_S: Final = 2.0
"""Most seconds that a failed producer may take to stop."""
PARTITIONS_S: Final = 10.0
"""Timeout of the partition count over the one connection to a volatile broker."""
METADATA_S: Final = 30.0
"""How often the partition count is read again while nothing fails."""
_LOST_STOP_S: Final = 0.1
"""`STOP_S` if nothing can, or may, arrive any more."""


class LiveProducer:
    """A producer, the count of partitions that it uses, and its batches in flight.

    `life`: the life of a broker with a volatile log; None for any other broker.
    """

    def __init__(self, producer: CompressingProducer, partitions: int) -> None:
        self.producer, self.partitions = producer, partitions
        self.broken = False
        self.stop_s = STOP_S
        self.life: BrokerLife | None = None
        self.in_flight: set[asyncio.Future[Any]] = set()


class ProducerConnection:
    """The connection to one topic, with one live producer at a time."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        compression: Compression | None,
        client_id: str,
        where: str,
        *,
        lives: bool = False,
        profile: str | None = None,
    ) -> None:
        """`where`: where events wait while no broker answers, for log messages.

        `lives`: distinguish the lives of a volatile broker. `profile`: of the connection's
        security; None: the process's own.
        """
        self._profile = profile
        self._lives = lives
        self._kafka, self.topic, self._where = kafka, topic, where
        self._compression, self._client_id = compression, client_id
        self._current: LiveProducer | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._unreachable = self._dropped = False

    async def get(self) -> LiveProducer:
        """Return a live producer; retries until there is one."""
        while self._current is None or self._current.broken:
            await asyncio.gather(*self._stopping)
            if self._dropped or self._unreachable:
                await asyncio.sleep(RETRY_S)
            try:
                self._current = await self._start()
            except Exception as error:  # also an invalid address: other targets go on
                if not self._unreachable:
                    self._unreachable = True
                    self._warn(error)
            else:
                self._unreachable = self._dropped = False
        return self._current

    def _warn(self, error: Exception) -> None:
        if isinstance(error, LogNotReady):
            log.warning(
                "the log at %s is being recreated; events wait %s", self._kafka, self._where
            )
            return
        trouble = kafka_trouble(self._kafka, error)
        why = f"{trouble.what}; {trouble.remedy}" if trouble else type(error).__name__
        if trouble is None and not _is_plain(error):
            why = f"{why}: {error}"
        log.warning(
            "no Kafka broker answers at %s (%s); events wait %s", self._kafka, why, self._where
        )

    async def _start(self) -> LiveProducer:
        # Each time: a file may have been replaced.
        security = None if self._profile is None else security_of_profile(self._profile)
        producer = await start_producer(
            self._kafka,
            security=security,
            compression=self._compression,
            client_id=self._client_id,
            max_batch_size=1_000_000,
            max_request_size=1_048_576,
            request_timeout_ms=30_000,
            metadata_max_age_ms=int(METADATA_S * 1000),
        )
        try:
            live = LiveProducer(producer, 0)
            # First: the embedded broker creates any topic that it is queried for, with its own
            # number of partitions, so wait until the service has created the topics.
            if self._lives:
                live.life = await producer.life(
                    self._kafka, lambda: self._on_connection_lost(live), security
                )
            used = await self._epoch_partitions(live, security)
            # Over a lost connection no response would ever arrive.
            limit_s = PARTITIONS_S if live.life else None
            found = await asyncio.wait_for(producer.partitions(self.topic), limit_s)
            # Workers read no partitions that the topic was given later.
            live.partitions = found if used is None else min(found, used)
            producer.watch_partitions(self.topic, found, lambda: self._on_partitions_changed(live))
        except BaseException:
            await producer.end(STOP_S)
            raise
        return live

    async def _epoch_partitions(
        self, live: LiveProducer, security: KafkaSecurity | None
    ) -> int | None:
        """Return how many partitions the log epoch has; None: unknown, or another's topic."""
        if self.topic not in (EVENTS, DECISIONS):
            return None
        if live.life is not None:
            return live.life.partitions
        return await live.producer.epoch_partitions(self._kafka, security)

    def _on_connection_lost(self, live: LiveProducer) -> None:
        live.stop_s = _LOST_STOP_S
        self.drop(live, KafkaConnectionError("the connection to the broker was lost"))

    def _on_partitions_changed(self, live: LiveProducer) -> None:
        live.stop_s = _LOST_STOP_S
        self.drop(live, KafkaError(f"{self.topic} was deleted or has another number of partitions"))

    def drop(self, live: LiveProducer, error: BaseException) -> None:
        """Stop a producer that failed; its other batches in flight fail too."""
        if live.broken:
            return
        live.broken = self._dropped = True
        if self._current is live:
            self._current = None
        log.warning("sending failed, events wait %s: %r", self._where, error)
        self._stop(live)

    def _stop(self, live: LiveProducer) -> None:
        async def end() -> None:
            await live.producer.end(live.stop_s)
            for future in list(live.in_flight):
                if not future.done():
                    future.set_exception(KafkaError("the producer was stopped"))

        task = asyncio.get_running_loop().create_task(end())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def close(self) -> None:
        """Stop the producer at once."""
        if self._current is not None:
            self._current.broken = True
            self._stop(self._current)
            self._current = None
        await asyncio.gather(*self._stopping)


def _is_plain(error: Exception) -> bool:
    """Return whether an error's type says enough."""
    is_known = isinstance(error, KafkaError | OSError)
    return is_known and not isinstance(error, UnknownTopicOrPartitionError)
