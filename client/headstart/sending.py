"""Sends events of one topic: frames per key, an idempotent producer, order kept per key.

At most one frame of a key is under way, and what failed goes out again before anything newer of
its key, whoever failed: so a receiver may drop what is at or below the last position it has seen
of a spool and key. Where the events wait is none of this module's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from headstart.compressing import FrameProducer, end_producer, start_producer
from headstart.compression import Compression
from headstart.directory import CLIENT_ID
from headstart.frames import cut_frames, encode_frame

log = logging.getLogger("headstart")

RETRY_S: Final = 1.0
STOP_S: Final = 2.0
"""How long a producer that failed may take to end."""
FRAME_EVENTS: Final = 200


class Receipt(Protocol):
    """What the sender tells about an event to whoever keeps it."""

    def delivered(self) -> None:
        """Note that the broker has the event."""
        ...

    def refused(self, event: bytes, reason: str) -> None:
        """Note that it will never be sent."""
        ...

    def expired(self) -> bool:
        """Whether it is too old to be sent."""
        ...


class _Link:
    """One producer and what was given to it."""

    def __init__(self, producer: AIOKafkaProducer | FrameProducer) -> None:
        self.producer = producer
        self.broken = False
        self.under_way: set[asyncio.Future[Any]] = set()


class Sender:
    """A queue per key, and a task that empties each."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        compression: Compression | None = None,
        client_id: str = CLIENT_ID,
        where: str = "in memory",
    ) -> None:
        """`where`: where events wait while no broker answers, for the log."""
        self.kafka, self.topic, self._where = kafka, topic, where
        self._compression, self._client_id = compression, client_id
        self.waiting_bytes = 0
        self._queues: dict[bytes, deque[tuple[bytes, Receipt]]] = {}
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._link: _Link | None = None
        self._linking = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._away = self._broke = False
        self._failed: BaseException | None = None

    def add(self, key: bytes, event: bytes, receipt: Receipt, linger_s: float) -> None:
        """Queue one event; a frame that is not full waits up to `linger_s` for others of its key.

        Raises what ended a task of this sender unexpectedly.
        """
        self.check()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            task = asyncio.get_running_loop().create_task(self._empty(key, queue, linger_s))
            self._tasks[key] = task
            task.add_done_callback(self._note)
        queue.append((event, receipt))
        self.waiting_bytes += len(event)

    def check(self) -> None:
        """Raise what ended a task of this sender unexpectedly: what it had will not be sent."""
        if self._failed is not None:
            raise self._failed

    def _note(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()

    async def _empty(
        self, key: bytes, queue: deque[tuple[bytes, Receipt]], linger_s: float
    ) -> None:
        """Send frame after frame of one key, each when the one before is through."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(until_cut(loop.time(), linger_s))  # lets a frame fill
        most = FRAME_EVENTS
        while queue:
            self._refuse_expired(queue)
            frame = _next_frame(queue, most)
            if not frame:
                break
            others = len(queue) > len(frame)
            try:
                await self._send(key, frame)
            except MessageSizeTooLargeError as error:
                if len(frame) > 1:
                    most = len(frame) // 2
                    continue
                event, receipt = queue.popleft()
                self.waiting_bytes -= len(event)
                receipt.refused(event, f"the broker takes no record of {len(event)} bytes: {error}")
            except KafkaError:
                continue
            else:
                for _ in frame:
                    event, receipt = queue.popleft()
                    self.waiting_bytes -= len(event)
                    receipt.delivered()
                if queue and not others:  # what has come since waits as the first one did
                    await asyncio.sleep(until_cut(loop.time(), linger_s))
            most = FRAME_EVENTS
        del self._queues[key], self._tasks[key]

    def _refuse_expired(self, queue: deque[tuple[bytes, Receipt]]) -> None:
        while queue and queue[0][1].expired():
            event, receipt = queue.popleft()
            self.waiting_bytes -= len(event)
            receipt.refused(event, "too old")

    async def _send(self, key: bytes, frame: list[bytes]) -> None:
        """Send one frame and wait for its acknowledgement. Raises `KafkaError`."""
        link = await self._linked()
        try:
            future = await link.producer.send(self.topic, encode_frame(frame), key=key)
            if link.broken:
                raise KafkaError("the producer has ended")
            link.under_way.add(future)
            try:
                await future
            finally:
                link.under_way.discard(future)
        except KafkaError as error:
            await self._unlink(link, error)
            raise

    async def _linked(self) -> _Link:
        """Return a link that works; keeps trying, because events already wait."""
        async with self._linking:
            if self._link is None and self._broke:
                await asyncio.sleep(RETRY_S)
            while self._link is None:
                try:
                    producer = await start_producer(
                        self.kafka,
                        compression=self._compression,
                        client_id=self._client_id,
                        max_batch_size=1_000_000,
                        max_request_size=1_048_576,
                        request_timeout_ms=30_000,
                    )
                except (KafkaError, OSError) as error:
                    if not self._away:
                        self._away = True
                        log.warning(
                            "no Kafka broker answers at %s (%s); events wait %s",
                            self.kafka,
                            type(error).__name__,
                            self._where,
                        )
                    await asyncio.sleep(RETRY_S)
                else:
                    self._away = self._broke = False
                    self._link = _Link(producer)
            return self._link

    async def _unlink(self, link: _Link, error: KafkaError) -> None:
        """End a producer that failed: its successor numbers its batches anew.

        What else it had under way has an unknown fate, and is sent again.
        """
        if link.broken:
            return
        link.broken = self._broke = True
        if self._link is link:
            self._link = None
        log.warning("events wait %s, sending failed: %r", self._where, error)
        await asyncio.shield(self._end(link))

    def _end(self, link: _Link) -> asyncio.Task[None]:
        async def end() -> None:
            await end_producer(link.producer, STOP_S)
            for future in link.under_way:
                if not future.done():
                    future.set_exception(KafkaError("the producer has ended"))
                    future.exception()  # whoever waited for it may be gone

        task = asyncio.get_running_loop().create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def close(self) -> None:
        """Stop at once. What was not acknowledged stays with whoever keeps it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._queues.clear()
        self._tasks.clear()
        if self._link is not None:
            self._end(self._link)
            self._link = None
        await asyncio.gather(*self._ending)


def until_cut(now: float, linger_s: float) -> float:
    """Return the seconds from `now`, of any clock, to the next multiple of `linger_s`.

    The frames of all keys are cut together, because what is sent at once is one request to a
    broker: each wakes the broker, and whoever waits there.
    """
    return linger_s - now % linger_s if linger_s > 0 else 0.0


def _next_frame(queue: deque[tuple[bytes, Receipt]], most: int) -> list[bytes]:
    events = (event for event, _receipt in queue)
    return next(cut_frames(events, most), [])
