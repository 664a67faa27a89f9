"""The emitter's sending side: frames per key, an idempotent producer, order kept per key."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headstart.frames import cut_frames, encode_frame
from headstart.producing import start_producer

if TYPE_CHECKING:
    from headstart.emitter import Emitter

log = logging.getLogger("headstart")

TAKE: Final = 5_000
"""Events framed in one round."""
RETRY_S: Final = 1.0
POLL_S: Final = 0.2


async def send_forever(emitter: Emitter) -> None:
    """Send what the emitter holds until it is closed and empty."""
    producer = await _connect(emitter)
    try:
        while await asyncio.to_thread(emitter.wait_for_events, POLL_S):
            await asyncio.sleep(emitter.linger_s)  # lets a frame fill
            events = emitter.take(TAKE)
            if events:
                await _send(producer, emitter, events)
    finally:
        await producer.stop()


async def _connect(emitter: Emitter) -> AIOKafkaProducer:
    """Return a started producer; keeps trying, because events already wait."""
    warned = False
    while True:
        try:
            return await start_producer(
                emitter.kafka,
                max_batch_size=1_000_000,
                max_request_size=1_048_576,
                request_timeout_ms=30_000,
            )
        except (KafkaError, OSError) as error:
            if emitter.closing:  # nobody waits for these events any more
                raise
            if not warned:
                log.warning(
                    "no Kafka broker answers at %s (%s); events wait in memory",
                    emitter.kafka,
                    type(error).__name__,
                )
                warned = True
            await asyncio.sleep(RETRY_S)


async def _send(
    producer: AIOKafkaProducer, emitter: Emitter, events: list[tuple[bytes, bytes]]
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
        pending = await _try(producer, emitter, pending)
        if pending:
            if emitter.closing:
                raise KafkaError("closed before the broker took every event")
            await asyncio.sleep(RETRY_S)


async def _try(
    producer: AIOKafkaProducer, emitter: Emitter, frames: dict[Any, list[bytes]]
) -> dict[Any, list[bytes]]:
    """Send frames; return those that failed, to be sent again in the same order."""
    futures = {}
    for (key, index), frame in frames.items():
        try:
            futures[key, index] = await producer.send(emitter.topic, encode_frame(frame), key=key)
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
            emitter.acknowledge(len(frame))
    return failed
