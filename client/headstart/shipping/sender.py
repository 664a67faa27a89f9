"""Sends the events of one topic in frames per key, in order per key, with an idempotent producer.

At most one frame of a key is in flight, and a failed one is sent again before anything newer of its
key: so a receiver may drop positions at or below the last one it has seen of a spool and key. If
the broker has lost its log (`volatile_broker`), all queues are discarded before anything is sent:
the buffer adds the events again, from an older one on. Frames that are due are sent together, those
of a partition as one record batch, of which one is in flight at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from headstart.codecs import Compression
from headstart.events.frames import cut_frames, encode_frame
from headstart.partitioner import partition_for_key
from headstart.shipping.producer_connection import LiveProducer, ProducerConnection
from headstart.spool.layout import CLIENT_ID

FRAME_EVENTS: Final = 200


class Receipt(Protocol):
    """The callbacks of an event's owner."""

    def delivered(self) -> None:
        """Note that the broker has the event."""
        ...

    def refused(self, event: bytes, reason: str) -> None:
        """Note that the event will never be sent."""
        ...

    def expired(self) -> bool:
        """Return whether the event is too old to be sent."""
        ...


class _Queue:
    """The events of one key that the broker does not have yet, oldest first.

    `max_events`: of a frame. `own_batch`: the frame needs a record batch to itself.
    """

    __slots__ = ("events", "linger_s", "max_events", "own_batch")

    def __init__(self, linger_s: float) -> None:
        self.linger_s = linger_s
        self.events: deque[tuple[bytes, Receipt]] = deque()
        self.max_events, self.own_batch = FRAME_EVENTS, False


class _Frame(NamedTuple):
    """A frame in flight. `others`: whether more events of its key waited behind it."""

    key: bytes
    queue: _Queue
    events: int
    others: bool


OnConnect = Callable[[bool, bool], None]
"""Called with each new producer: whether its log is volatile, and whether that is another log than
the last producer's, so that acknowledged events are lost and the queues were discarded."""
_BatchSlot = tuple[int, bool]
"""A partition, and whether its record batch is compressed; one batch each is in flight."""


class Sender:
    """A queue per key, and one task that sends the frames that are due."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        compression: Compression | None = None,
        client_id: str = CLIENT_ID,
        where: str = "in memory",
        profile: str | None = None,
        on_connect: OnConnect | None = None,
    ) -> None:
        """`where`: where events wait while no broker answers, for log messages.

        `profile`: the name of the connection's security; None: the process's own.
        """
        lives = on_connect is not None
        self._connection = ProducerConnection(
            kafka, topic, compression, client_id, where, lives=lives, profile=profile
        )
        self._on_connect = on_connect
        self._producer: LiveProducer | None = None
        self._epoch: int | None = None
        self._connected = self._wants_producer = False
        self.waiting_bytes = 0
        self.ends: dict[int, int] = {}
        """Offset after the last record that this log acknowledged, by partition."""
        self._queues: dict[bytes, _Queue] = {}
        self._due: dict[bytes, _Queue] = {}
        """Keys with a frame to send, in order."""
        self._lingering: dict[tuple[float, int], list[bytes]] = {}
        """Keys whose frame lingers, by (linger, index of the linger period)."""
        self._busy: set[_BatchSlot] = set()
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._closed = False

    def add(self, key: bytes, event: bytes, receipt: Receipt, linger_s: float) -> None:
        """Queue one event; a partial frame waits up to `linger_s` seconds for others of its key.

        Raises the error that ended the sender.
        """
        self.raise_if_failed()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(linger_s)
            self._linger(key, queue)
        queue.events.append((event, receipt))
        self.waiting_bytes += len(event)

    def raise_if_failed(self) -> None:
        """Raise the unexpected error that ended the sender, if any."""
        if self._failed is not None:
            raise self._failed

    def _linger(self, key: bytes, queue: _Queue) -> None:
        """Make a frame of a key due at the end of the linger period.

        The frames of all keys become due together: they are sent in one request, and each request
        wakes the broker and its consumers.
        """
        if queue.linger_s <= 0.0:
            self._mark_due(key, queue)
            return
        loop = asyncio.get_running_loop()
        period = queue.linger_s, int(loop.time() // queue.linger_s) + 1
        if period not in self._lingering:
            self._lingering[period] = []
            loop.call_at(period[0] * period[1], self._end_linger, period)
        self._lingering[period].append(key)

    def _end_linger(self, period: tuple[float, int]) -> None:
        for key in self._lingering.pop(period, ()):
            self._mark_due(key, self._queues[key])

    def _mark_due(self, key: bytes, queue: _Queue) -> None:
        self._due[key] = queue
        self._ensure_running()

    def _ensure_running(self) -> None:
        wanted = self._due or self._wants_producer
        if wanted and not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._send())
            self._task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()

    async def _send(self) -> None:
        """Send the frames that are due, if their partition has none in flight."""
        while self._due or self._wants_producer:
            live = await self._current_producer()
            await asyncio.sleep(0)  # events added now are sent too
            batches = self._batches(live)
            if not batches:
                return  # the next acknowledgement continues
            for slot, (batch, frames) in batches.items():
                self._busy.add(slot)
                await self._send_batch(live, slot, batch, frames)

    async def _current_producer(self) -> LiveProducer:
        """Return a live producer, after `on_connect` for a new one.

        Only the sending task calls this, when all batches of the last producer have failed: so no
        discarded frame can return.
        """
        live = await self._connection.get()
        self._wants_producer = False
        if live is not self._producer:
            self._producer = live
            epoch = None if live.life is None else live.life.epoch
            lost = self._connected and epoch != self._epoch
            self._connected, self._epoch = True, epoch
            if lost:
                self._discard_queues()
            if self._on_connect is not None:
                self._on_connect(epoch is not None, lost)
        return live

    def _discard_queues(self) -> None:
        """Discard all queues: their events are added again, after older ones."""
        for pending in (self._queues, self._due, self._lingering, self._busy, self.ends):
            pending.clear()
        self.waiting_bytes = 0

    async def committed(self) -> dict[str, Mapping[int, int]] | None:
        """Return the committed offsets of the consumer groups; None if not available now.

        A broken producer is replaced meanwhile, even if there is nothing to send.
        """
        life = None if self._producer is None or self._producer.broken else self._producer.life
        if life is None:
            self._wants_producer = True
            self._ensure_running()
            return None
        try:
            return await life.committed(self._connection.topic, sorted(self.ends))
        except KafkaError:
            return None

    async def _send_batch(
        self, live: LiveProducer, slot: _BatchSlot, batch: Any, frames: Sequence[_Frame]
    ) -> None:
        """Send a record batch."""
        partition, compressed = slot
        try:
            if live.broken:
                raise KafkaError("the producer was stopped")
            topic = self._connection.topic
            future = await live.producer.send(batch, topic, partition, compressed=compressed)
        except KafkaError as error:
            self._connection.drop(live, error)
            self._retry(slot, frames)
            return
        live.in_flight.add(future)
        future.add_done_callback(partial(self._store_answer, live, slot, frames))

    def _batches(self, live: LiveProducer) -> dict[_BatchSlot, tuple[Any, list[_Frame]]]:
        """Return record batches of the due frames; those that do not fit stay due."""
        found: dict[_BatchSlot, tuple[Any, list[_Frame]]] = {}
        full = set(self._busy)
        for key, queue in list(self._due.items()):
            partition = partition_for_key(key, live.partitions)
            if all((partition, compressed) in full for compressed in live.producer.kinds):
                continue
            events = self._next_frame(key, queue)
            if not events:
                continue
            value = encode_frame(events)
            slot = partition, live.producer.compresses(len(value))
            if slot in full or (queue.own_batch and slot in found):
                continue
            batch, frames = found.get(slot) or (live.producer.batch(compressed=slot[1]), [])
            if batch.append(key=key, value=value, timestamp=None) is None:
                full.add(slot)
                continue
            if queue.own_batch:
                full.add(slot)
            found[slot] = batch, frames
            frames.append(_Frame(key, queue, len(events), len(queue.events) > len(events)))
            del self._due[key]
        return found

    def _next_frame(self, key: bytes, queue: _Queue) -> list[bytes]:
        """Return the events of a key's next frame; delete the key if there are none."""
        events = queue.events
        while events and events[0][1].expired():
            self._refuse(queue, "too old")
        frame = next(cut_frames((event for event, _ in events), queue.max_events), [])
        if not frame:
            del self._due[key], self._queues[key]
        return frame

    def _refuse(self, queue: _Queue, reason: str) -> None:
        event, receipt = queue.events.popleft()
        self.waiting_bytes -= len(event)
        receipt.refused(event, reason)

    def _store_answer(
        self,
        live: LiveProducer,
        slot: _BatchSlot,
        frames: Sequence[_Frame],
        future: asyncio.Future[Any],
    ) -> None:
        live.in_flight.discard(future)
        error = KafkaError("given up") if future.cancelled() else future.exception()
        if self._closed:
            return
        try:
            if error is None:
                if live.life is not None:
                    self.ends[slot[0]] = future.result().offset + len(frames)
                self._on_acknowledged(slot, frames)
            else:
                self._on_error(live, slot, frames, error)
        except BaseException as unexpected:  # asyncio would only log it
            self._failed = unexpected

    def _on_error(
        self, live: LiveProducer, slot: _BatchSlot, frames: Sequence[_Frame], error: BaseException
    ) -> None:
        if isinstance(error, MessageSizeTooLargeError):
            if len(frames) == frames[0].events == 1:
                size = len(frames[0].queue.events[0][0])
                reason = f"the broker refuses a record of {size} bytes: {error}"
                self._refuse(frames[0].queue, reason)
            _reduce_frames(frames)
        elif isinstance(error, KafkaError):
            self._connection.drop(live, error)
        else:
            raise error
        self._retry(slot, frames)

    def _on_acknowledged(self, slot: _BatchSlot, frames: Sequence[_Frame]) -> None:
        self._busy.discard(slot)
        for key, queue, events, others in frames:
            for _ in range(events):
                event, receipt = queue.events.popleft()
                self.waiting_bytes -= len(event)
                receipt.delivered()
            queue.max_events, queue.own_batch = FRAME_EVENTS, False
            if not queue.events:
                del self._queues[key]
            elif others:
                self._due[key] = queue
            else:  # events added since linger too
                self._linger(key, queue)
        self._ensure_running()

    def _retry(self, slot: _BatchSlot, frames: Sequence[_Frame]) -> None:
        """Make failed frames due again, before all others."""
        self._busy.discard(slot)
        self._due = {frame.key: frame.queue for frame in frames} | self._due
        self._ensure_running()

    async def close(self) -> None:
        """Stop at once; events that were not acknowledged stay with their owner."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._queues.clear()
        self._due.clear()
        self._lingering.clear()
        await self._connection.close()


def _reduce_frames(frames: Sequence[_Frame]) -> None:
    """Send frames that the broker found too large in batches of their own, then halved."""
    for frame in frames:
        if frame.queue.own_batch:
            frame.queue.max_events = max(1, frame.events // 2)
        frame.queue.own_batch = True
