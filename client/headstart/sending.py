"""The emitter's sending side: frames per key, an idempotent producer, order kept per key."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headstart.frames import cut_frames, encode_frame
from headstart.producing import start_producer

log = logging.getLogger("headstart")

TAKE: Final = 5_000
"""Events framed in one round."""
RETRY_S: Final = 1.0
POLL_S: Final = 0.2


class Outbox(Protocol):
    """What holds events until the broker has them (the emitter)."""

    kafka: str
    topic: str
    linger_s: float

    @property
    def closing(self) -> bool:
        """Whether nobody waits for these events any more."""
        ...

    def wait_for_events(self, timeout_s: float) -> bool:
        """Wait for something to send; return False when there will be nothing more."""
        ...

    def take(self, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` (key, event) pairs, oldest first."""
        ...

    def acknowledge(self, count: int) -> None:
        """Note that the broker has `count` more events."""
        ...


async def send_forever(outbox: Outbox) -> None:
    """Send what the outbox holds until it is closed and empty."""
    producer = await _connect(outbox)
    try:
        while await asyncio.to_thread(outbox.wait_for_events, POLL_S):
            await asyncio.sleep(outbox.linger_s)  # lets a frame fill
            events = outbox.take(TAKE)
            if events:
                await _send(producer, outbox, events)
    finally:
        await producer.stop()


async def _connect(outbox: Outbox) -> AIOKafkaProducer:
    """Return a started producer; keeps trying, because events already wait."""
    warned = False
    while True:
        try:
            return await start_producer(
                outbox.kafka,
                max_batch_size=1_000_000,
                max_request_size=1_048_576,
                request_timeout_ms=30_000,
            )
        except (KafkaError, OSError) as error:
            if outbox.closing:  # nobody waits for these events any more
                raise
            if not warned:
                log.warning(
                    "no Kafka broker answers at %s (%s); events wait in memory",
                    outbox.kafka,
                    type(error).__name__,
                )
                warned = True
            await asyncio.sleep(RETRY_S)


async def _send(
    producer: AIOKafkaProducer, outbox: Outbox, events: list[tuple[bytes, bytes]]
) -> None:
    """Send one round and wait for it: nothing newer of a key goes out before it is through."""
    by_key: dict[bytes, list[bytes]] = {}
    for key, value in events:
        by_key.setdefault(key, []).append(value)
    pending = {
        (key, index): frame
        for key, values in by_key.items()
        for index, frame in enumerate(cut_frames(values))
    }
    while pending:
        pending = await _try(producer, outbox, pending)
        if pending:
            if outbox.closing:
                raise KafkaError("closed before the broker took every event")
            await asyncio.sleep(RETRY_S)


async def _try(
    producer: AIOKafkaProducer, outbox: Outbox, frames: dict[Any, list[bytes]]
) -> dict[Any, list[bytes]]:
    """Send frames; return those that failed, to be sent again in the same order."""
    futures = {}
    for (key, index), frame in frames.items():
        try:
            futures[key, index] = await producer.send(outbox.topic, encode_frame(frame), key=key)
        except KafkaError as error:
            log.warning("events wait, sending failed: %s", error)
            break
    await asyncio.gather(*futures.values(), return_exceptions=True)
    failed = {}
    for place, frame in frames.items():
        future = futures.get(place)
        if future is None or future.exception() is not None:
            failed[place] = frame
        else:
            outbox.acknowledge(len(frame))
    return failed
