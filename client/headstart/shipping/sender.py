"""Sends events of one topic: frames per key, an idempotent producer, order kept per key.

At most one frame of a key is under way, and what failed goes out again before anything newer of
its key, whoever failed: so a receiver may drop what is at or below the last position it has seen
of a spool and key. Where the broker has lost its log (`volatile`), everything that is queued is
forgotten before anything is sent: the outbox adds the events again from an older one on. The frames
that are due go out together, those of a partition as one record batch, of which one is under way at
a time. Where the events wait is none of this module's business.
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


class _Queue:
    """The events of one key that the broker does not have yet, oldest first.

    `most` of them make a frame; `alone`: it has a record batch to itself.
    """

    __slots__ = ("alone", "events", "linger_s", "most")

    def __init__(self, linger_s: float) -> None:
        self.linger_s = linger_s
        self.events: deque[tuple[bytes, Receipt]] = deque()
        self.most, self.alone = FRAME_EVENTS, False


class _Frame(NamedTuple):
    """A frame under way. `others`: whether more events of its key waited behind it."""

    key: bytes
    queue: _Queue
    events: int
    others: bool


OnLink = Callable[[bool, bool], None]
"""Told of each new link: whether the log is a volatile one, and whether it is another one than the
last link's, so that what was acknowledged is lost and what was queued is forgotten."""
_Lane = tuple[int, bool]
"""A partition, and whether its record batch is compressed."""


class Sender:
    """A queue per key, and one task that sends what is due."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        compression: Compression | None = None,
        client_id: str = CLIENT_ID,
        where: str = "in memory",
        on_link: OnLink | None = None,
    ) -> None:
        """`where`: where events wait while no broker answers, for the log."""
        lives = on_link is not None
        self._linking = ProducerConnection(kafka, topic, compression, client_id, where, lives=lives)
        self._on_link = on_link
        self._link: LiveProducer | None = None
        self._epoch: int | None = None
        self._linked = self._wants_link = False
        self.waiting_bytes = 0
        self.ends: dict[int, int] = {}
        """Offset behind the last record that this log acknowledged, by partition."""
        self._queues: dict[bytes, _Queue] = {}
        self._due: dict[bytes, _Queue] = {}
        """Keys of which a frame is to go out, in the order in which it is their turn."""
        self._cuts: dict[tuple[float, int], list[bytes]] = {}
        """Keys whose frame fills until then."""
        self._busy: set[_Lane] = set()
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._closed = False

    def add(self, key: bytes, event: bytes, receipt: Receipt, linger_s: float) -> None:
        """Queue one event; a frame that is not full waits up to `linger_s` for others of its key.

        Raises what ended the sender unexpectedly.
        """
        self.check()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(linger_s)
            self._linger(key, queue)
        queue.events.append((event, receipt))
        self.waiting_bytes += len(event)

    def check(self) -> None:
        """Raise what ended the sender unexpectedly: what it had will not be sent."""
        if self._failed is not None:
            raise self._failed

    def _linger(self, key: bytes, queue: _Queue) -> None:
        """Have a frame of a key go out at the next cut.

        Those of all keys are cut together: what is sent at once is one request to a broker, and
        each wakes the broker, and whoever waits there.
        """
        if queue.linger_s <= 0.0:
            self._now_due(key, queue)
            return
        loop = asyncio.get_running_loop()
        cut = queue.linger_s, int(loop.time() // queue.linger_s) + 1
        if cut not in self._cuts:
            self._cuts[cut] = []
            loop.call_at(cut[0] * cut[1], self._cut, cut)
        self._cuts[cut].append(key)

    def _cut(self, cut: tuple[float, int]) -> None:
        for key in self._cuts.pop(cut, ()):
            self._now_due(key, self._queues[key])

    def _now_due(self, key: bytes, queue: _Queue) -> None:
        self._due[key] = queue
        self._go_on()

    def _go_on(self) -> None:
        wanted = self._due or self._wants_link
        if wanted and not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._send())
            self._task.add_done_callback(self._note)

    def _note(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()

    async def _send(self) -> None:
        """Send what is due, as far as its partition has nothing under way."""
        while self._due or self._wants_link:
            link = await self._current_link()
            await asyncio.sleep(0)  # what is added now goes along
            batches = self._batches(link)
            if not batches:
                return  # an acknowledgement goes on
            for lane, (batch, frames) in batches.items():
                self._busy.add(lane)
                await self._give(link, lane, batch, frames)

    async def _current_link(self) -> LiveProducer:
        """Return a link that works, once everybody knows which log it leads to.

        Only the one task that sends comes here, and what an older link had under way has failed by
        then: so nothing of what is forgotten can come back.
        """
        link = await self._linking.link()
        self._wants_link = False
        if link is not self._link:
            self._link = link
            epoch = None if link.life is None else link.life.epoch
            lost = self._linked and epoch != self._epoch
            self._linked, self._epoch = True, epoch
            if lost:
                self._forget()
            if self._on_link is not None:
                self._on_link(epoch is not None, lost)
        return link

    def _forget(self) -> None:
        """Forget all that is queued: it is going to be added again, behind what is older."""
        for pending in (self._queues, self._due, self._cuts, self._busy, self.ends):
            pending.clear()
        self.waiting_bytes = 0

    async def committed(self) -> dict[str, Mapping[int, int]] | None:
        """Return what consumers have committed of this log; None where it cannot be told now.

        A link that is gone is replaced meanwhile, though there may be nothing to send.
        """
        life = None if self._link is None or self._link.broken else self._link.life
        if life is None:
            self._wants_link = True
            self._go_on()
            return None
        try:
            return await life.committed(self._linking.topic, sorted(self.ends))
        except KafkaError:
            return None

    async def _give(
        self, link: LiveProducer, lane: _Lane, batch: Any, frames: Sequence[_Frame]
    ) -> None:
        """Give a record batch to the producer."""
        partition, packed = lane
        try:
            if link.broken:
                raise KafkaError("the producer has ended")
            topic = self._linking.topic
            future = await link.producer.send(batch, topic, partition, packed=packed)
        except KafkaError as error:
            self._linking.drop(link, error)
            self._again(lane, frames)
            return
        link.under_way.add(future)
        future.add_done_callback(partial(self._store_answer, link, lane, frames))

    def _batches(self, link: LiveProducer) -> dict[_Lane, tuple[Any, list[_Frame]]]:
        """Return record batches of what is due, by lane; what does not fit in stays due."""
        found: dict[_Lane, tuple[Any, list[_Frame]]] = {}
        full = set(self._busy)
        for key, queue in list(self._due.items()):
            partition = partition_for_key(key, link.partitions)
            if all((partition, packed) in full for packed in link.producer.kinds):
                continue
            events = self._next_frame(key, queue)
            if not events:
                continue
            value = encode_frame(events)
            lane = partition, link.producer.packs(len(value))
            if lane in full or (queue.alone and lane in found):
                continue
            batch, frames = found.get(lane) or (link.producer.batch(packed=lane[1]), [])
            if batch.append(key=key, value=value, timestamp=None) is None:
                full.add(lane)
                continue
            if queue.alone:
                full.add(lane)
            found[lane] = batch, frames
            frames.append(_Frame(key, queue, len(events), len(queue.events) > len(events)))
            del self._due[key]
        return found

    def _next_frame(self, key: bytes, queue: _Queue) -> list[bytes]:
        """Return the events of a key's next frame; the key goes where there is none."""
        events = queue.events
        while events and events[0][1].expired():
            self._refuse(queue, "too old")
        frame = next(cut_frames((event for event, _ in events), queue.most), [])
        if not frame:
            del self._due[key], self._queues[key]
        return frame

    def _refuse(self, queue: _Queue, reason: str) -> None:
        event, receipt = queue.events.popleft()
        self.waiting_bytes -= len(event)
        receipt.refused(event, reason)

    def _store_answer(
        self, link: LiveProducer, lane: _Lane, frames: Sequence[_Frame], future: asyncio.Future[Any]
    ) -> None:
        link.under_way.discard(future)
        error = KafkaError("given up") if future.cancelled() else future.exception()
        if self._closed:
            return
        try:
            if error is None:
                if link.life is not None:
                    self.ends[lane[0]] = future.result().offset + len(frames)
                self._delivered(lane, frames)
            else:
                self._refused(link, lane, frames, error)
        except BaseException as unexpected:  # asyncio would only log it
            self._failed = unexpected

    def _refused(
        self, link: LiveProducer, lane: _Lane, frames: Sequence[_Frame], error: BaseException
    ) -> None:
        if isinstance(error, MessageSizeTooLargeError):
            if len(frames) == frames[0].events == 1:
                size = len(frames[0].queue.events[0][0])
                reason = f"the broker takes no record of {size} bytes: {error}"
                self._refuse(frames[0].queue, reason)
            _make_smaller(frames)
        elif isinstance(error, KafkaError):
            self._linking.drop(link, error)
        else:
            raise error
        self._again(lane, frames)

    def _delivered(self, lane: _Lane, frames: Sequence[_Frame]) -> None:
        self._busy.discard(lane)
        for key, queue, events, others in frames:
            for _ in range(events):
                event, receipt = queue.events.popleft()
                self.waiting_bytes -= len(event)
                receipt.delivered()
            queue.most, queue.alone = FRAME_EVENTS, False
            if not queue.events:
                del self._queues[key]
            elif others:
                self._due[key] = queue
            else:  # what has come since waits as the first one did
                self._linger(key, queue)
        self._go_on()

    def _again(self, lane: _Lane, frames: Sequence[_Frame]) -> None:
        """Have frames go out once more, before anything else."""
        self._busy.discard(lane)
        self._due = {frame.key: frame.queue for frame in frames} | self._due
        self._go_on()

    async def close(self) -> None:
        """Stop at once. What was not acknowledged stays with whoever keeps it."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._queues.clear()
        self._due.clear()
        self._cuts.clear()
        await self._linking.close()


def _make_smaller(frames: Sequence[_Frame]) -> None:
    """Have frames that the broker found too large go out by themselves, then halved."""
    for frame in frames:
        if frame.queue.alone:
            frame.queue.most = max(1, frame.events // 2)
        frame.queue.alone = True
