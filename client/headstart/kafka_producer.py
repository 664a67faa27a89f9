"""Starts Kafka producers with acks=all and, where the broker supports it, idempotence."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, UnknownError

from headstart.arguments.addresses import refuse_credentials
from headstart.connections.kafka_connections import new_producer
from headstart.connections.kafka_errors import kafka_trouble
from headstart.connections.kafka_security import KafkaSecurity
from headstart.partitioner import partition_for_key

log = logging.getLogger("headstart")

_sender_log = logging.getLogger("aiokafka.producer.sender")


class BrokerUnreachable(ConnectionError):
    """No broker answered, or it refused; the message names the address and the remedy.

    `trouble`: the problem and its remedy, if known; None: no broker is running there.
    """

    def __init__(self, kafka: str, cause: BaseException) -> None:
        self.trouble = kafka_trouble(kafka, cause)
        super().__init__(
            f"Kafka broker at {kafka}: {self.trouble.what}; {self.trouble.remedy}"
            if self.trouble
            else f"no Kafka broker answers at {kafka} ({type(cause).__name__}). Start one with "
            "`headstart up`, or name yours: --kafka HOST:PORT or HEADSTART_KAFKA"
        )


async def require_broker(kafka: str) -> None:
    """Connect to a broker and disconnect.

    Raises `BrokerUnreachable` if none answers, `InvalidArgument` for an address with credentials.
    """
    refuse_credentials(kafka)
    producer = new_producer(kafka)
    bootstrap = logging.getLogger("aiokafka")
    level = bootstrap.level
    bootstrap.setLevel(logging.CRITICAL)  # the error below repeats it, with the remedy
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    finally:
        await producer.stop()
        bootstrap.setLevel(level)


async def start_producer(
    kafka: str, security: KafkaSecurity | None = None, **settings: Any
) -> AIOKafkaProducer:
    """Return a started producer with acks=all, idempotent where the broker supports it.

    The embedded broker (Tansu 0.6) answers aiokafka's version of the producer-id request with an
    unknown error. Its log is in memory and ends with the connection losses that idempotence
    protects from, so only there the producer is not idempotent.
    `security`: default: the process's own. Raises aiokafka's `KafkaError`, or `OSError`, if no
    broker answers, and `UnusableSecurity`.
    """
    always = {"acks": "all", "linger_ms": 0, "partitioner": _partition}
    settings = {**always, **settings}
    producer = new_producer(kafka, security, enable_idempotence=True, **settings)
    _sender_log.addFilter(_is_not_about_ids)
    try:
        await producer.start()
    except UnknownError:
        await producer.stop()
        log.info("the broker at %s assigns no producer ids; producing without idempotence", kafka)
        producer = new_producer(kafka, security, **settings)
        await _start_or_stop(producer)
    except BaseException:
        await producer.stop()
        raise
    finally:
        _sender_log.removeFilter(_is_not_about_ids)
    return producer


async def end_producer(producer: AIOKafkaProducer, timeout_s: float) -> None:
    """Stop a producer within `timeout_s` seconds and discard what it could not send.

    aiokafka's own `stop` waits for every batch, which without a broker takes forever. Connections
    get as long again: over TLS, asyncio waits 30 s for a broker that stands still to end its side.
    """
    try:
        await asyncio.wait_for(producer.stop(), timeout_s)
    except (TimeoutError, KafkaError, OSError):
        await producer._sender.close()
        await _disconnect(producer.client, timeout_s)


async def _disconnect(client: Any, timeout_s: float) -> None:
    closing = asyncio.ensure_future(client.close())
    # Not `wait_for`: if `stop` was cancelled while it disconnected, `close` raises CancelledError,
    # and this task is not cancelled.
    await asyncio.wait([closing], timeout=timeout_s)
    if not closing.done():
        closing.cancel()
    elif not closing.cancelled():
        closing.result()


async def _start_or_stop(producer: AIOKafkaProducer) -> None:
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise


def _partition(key: bytes | None, partitions: list[int], available: list[int]) -> int:
    """Return a record's partition as aiokafka does, with the hash cached; random without a key."""
    if key is None:
        return random.choice(available or partitions)
    return partitions[partition_for_key(key, len(partitions))]


def _is_not_about_ids(record: logging.LogRecord) -> bool:
    return "InitProducerIdRequest" not in record.getMessage()
