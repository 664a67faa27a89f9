"""Starts a Kafka producer that loses nothing and, where the broker can, repeats nothing."""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, UnknownError
from aiokafka.partitioner import DefaultPartitioner

from headstart.arguments.addresses import refuse_credentials

log = logging.getLogger("headstart")

_place = DefaultPartitioner()

_sender_log = logging.getLogger("aiokafka.producer.sender")


class BrokerUnreachable(ConnectionError):
    """No broker answered; the message names the address and the remedy."""

    def __init__(self, kafka: str, cause: BaseException) -> None:
        super().__init__(
            f"no Kafka broker answers at {kafka} ({type(cause).__name__}). Start one with "
            "`headstart up`, or name yours: --kafka HOST:PORT or HEADSTART_KAFKA"
        )


async def require_broker(kafka: str) -> None:
    """Return where a broker answers; raise `BrokerUnreachable` where none does.

    Raises `InvalidArgument` for an address with a user or password.
    """
    refuse_credentials(kafka)
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    bootstrap = logging.getLogger("aiokafka")
    level = bootstrap.level
    bootstrap.setLevel(logging.CRITICAL)  # the error below says it, with the remedy
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    finally:
        await producer.stop()
        bootstrap.setLevel(level)


async def start_producer(kafka: str, **settings: Any) -> AIOKafkaProducer:
    """Return a started producer with acks=all, idempotent where the broker supports it.

    The embedded broker (Tansu 0.6) answers the request for a producer id, in the version that
    aiokafka speaks, with an unknown error. It holds its log in memory, so the connection losses
    that idempotence protects from are its end anyway; there, and only there, do without.
    Raises aiokafka's `KafkaError`, or `OSError`, where no broker answers.
    """
    always = {"bootstrap_servers": kafka, "acks": "all", "linger_ms": 0, "partitioner": _placed}
    settings = {**always, **settings}
    producer = AIOKafkaProducer(enable_idempotence=True, **settings)
    _sender_log.addFilter(_not_about_ids)
    try:
        await producer.start()
    except UnknownError:
        await producer.stop()
        log.info("the broker at %s gives no producer ids: producing without idempotence", kafka)
        producer = AIOKafkaProducer(**settings)
        await _start(producer)
    except BaseException:
        await producer.stop()
        raise
    finally:
        _sender_log.removeFilter(_not_about_ids)
    return producer


async def end_producer(producer: AIOKafkaProducer, timeout_s: float) -> None:
    """Stop a producer, also one that has lost its broker; what it still holds is given up.

    aiokafka's own `stop` waits for every batch, which without a broker is for ever.
    """
    try:
        await asyncio.wait_for(producer.stop(), timeout_s)
    except (TimeoutError, KafkaError, OSError):
        await producer._sender.close()
        await producer.client.close()


async def _start(producer: AIOKafkaProducer) -> None:
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise


def _placed(key: bytes | None, partitions: list[int], available: list[int]) -> int:
    """Return the partition of a record as aiokafka does, which hashes a key in Python each time."""
    if key is None:
        return int(_place(key, partitions, available))
    return partitions[partition_for_key(key, len(partitions))]


@lru_cache(maxsize=16_384)
def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, by Java's murmur2, which every Kafka client places by."""
    return int(_place(key, range(partitions), ()))


def _not_about_ids(record: logging.LogRecord) -> bool:
    return "InitProducerIdRequest" not in record.getMessage()
