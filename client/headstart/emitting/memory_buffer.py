"""Buffers events in memory: they are lost with the process.

While events flow the sending thread polls and `put` only appends: waking a thread would cost the
caller more than all the rest. Once polls have found nothing for a while the thread sleeps, and the
next event wakes it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from typing import Final

from headstart.emitting.buffer import origin_prefix, with_origin
from headstart.events.schema import new_id
from headstart.scrubbing.scrubber import scrubber
from headstart.shipping.sender import Sender
from headstart.spool.layout import Progress, SpoolTarget
from headstart.spool.settings import BufferFull, OnFull

log = logging.getLogger("headstart")

_LOG_INTERVAL_S = 60.0
_FULL_POLL_S = 0.005
LEAST_PAUSE_S: Final = 0.002
LINGER_SHARE: Final = 0.25
"""Pause between polls, as a share of the linger that an event waits anyway."""
QUIET_POLLS: Final = 10
"""Consecutive polls without an event before the thread sleeps."""


class MemoryBuffer:
    """A buffer of at most `limit` events, sent by a thread of this process.

    At most half of them are with the sender; only the others can be dropped.
    """

    where = "in memory"

    def __init__(self, target: SpoolTarget, limit: int, on_full: OnFull = "raise") -> None:
        self._target, self._limit, self._on_full = target, limit, on_full
        self._max_sending = max(1, limit // 2)
        self._scrub = scrubber(target.scrub, "shipper")
        self._begin()

    def _begin(self) -> None:
        self.id = new_id()
        self._prefix = origin_prefix(self.id)
        self.emitted = self.dropped = 0
        self._settled = self._lost = self._scrubbed = self._sending = 0
        self._logged_at, self._unreported = -_LOG_INTERVAL_S, 0
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._asleep = False

    def put(self, key: bytes, body: bytes, now_ms: int) -> None:  # noqa: ARG002 - a spool's is aged
        """Queue one event."""
        if self._failure is not None:
            raise RuntimeError("the emitter has stopped sending") from self._failure
        while self.emitted - self._settled >= self._limit:
            self._make_room()
        event = with_origin(body, self._prefix, self.emitted)
        if self._thread is None:
            self._start()
        self.emitted += 1
        self._waiting.append((key, event))
        if self._asleep:  # read after the append; `_send` sets it before it polls
            self._asleep = False
            self._notify()

    def _start(self) -> None:
        """Start the sending thread. Raises `RuntimeError` while the process exits."""
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._run, name="headstart-emit", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._loop.close()
            raise
        self._thread = thread

    def _make_room(self) -> None:
        """Wait, drop the oldest event, or raise, by `on_full`."""
        if self._on_full == "block" and not self._closed and self._failure is None:
            time.sleep(_FULL_POLL_S)
            return
        if self._on_full != "drop_oldest" or not self._drop_oldest():
            raise BufferFull(
                f"{self._limit} events wait for the broker at {self._target.kafka}; is it running?"
            )
        self.dropped += 1
        self._unreported += 1
        if time.monotonic() - self._logged_at > _LOG_INTERVAL_S:
            log.error("%d events were dropped: %d wait in memory", self._unreported, self._limit)
            self._logged_at, self._unreported = time.monotonic(), 0

    def _drop_oldest(self) -> bool:
        try:
            self._waiting.popleft()
        except IndexError:
            return False
        with self._changed:
            self._settled += 1
            self._lost += 1
        return True

    def _notify(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        assert self._loop is not None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # type: ignore[arg-type,return-value]
                runner.run(self._send())
        except BaseException as error:
            log.error("emitter stopped: %r", error)
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    async def _send(self) -> None:
        target = self._target
        sender = Sender(
            target.kafka,
            target.topic,
            target.compression,
            target.client_id,
            profile=target.profile,
        )
        pause_s = max(LEAST_PAUSE_S, LINGER_SHARE * target.linger_s)
        quiet = 0
        try:
            while not self._closed:
                self._wake.clear()
                # Set before the poll: an event appended after it finds this set, and wakes.
                self._asleep = quiet >= QUIET_POLLS
                quiet = 0 if self._send_waiting(sender) else quiet + 1
                if self._sending >= self._max_sending:
                    self._asleep = False  # only an acknowledgement can make room
                    await self._wake.wait()
                elif self._asleep and quiet:
                    await self._wake.wait()
                    quiet = 0
                else:
                    self._asleep = False
                    await asyncio.sleep(pause_s)
        finally:
            await sender.close()

    def _send_waiting(self, sender: Sender) -> bool:
        """Pass waiting events to the sender, up to its share; return whether there were any."""
        moved = False
        while self._sending < self._max_sending:
            try:
                key, event = self._waiting.popleft()
            except IndexError:
                break
            self._send_one(sender, key, event)
            moved = True
        return moved

    def _send_one(self, sender: Sender, key: bytes, event: bytes) -> None:
        self._sending += 1
        if self._scrub is not None:
            before = self._scrub.replaced
            try:
                event = self._scrub(event)
            except ValueError as error:
                self.refused(event, f"cannot be scrubbed: {error}")
                return
            self._scrubbed += self._scrub.replaced - before
        sender.add(key, event, self, self._target.linger_s)

    def delivered(self) -> None:
        """Note that the broker has one more event."""
        self._sending -= 1
        self._wake.set()
        with self._changed:
            self._settled += 1
            if self._settled == self.emitted or not self._settled % 100:
                self._changed.notify_all()

    def refused(self, event: bytes, reason: str) -> None:
        """Log and count a lost event."""
        log.error("an event was lost: %s: %.200r", reason, event)
        with self._changed:  # `_drop_oldest` counts in another thread
            self._lost += 1
        self.delivered()

    def expired(self) -> bool:
        """Return False: events in memory are never too old for the receiver."""
        return False

    def progress(self) -> Progress:
        """Return the progress. `settled` is a count, as keys overtake each other."""
        return Progress(self._settled, self._lost, self._scrubbed)

    def dropped_between(self, first: int, end: int) -> int:  # noqa: ARG002 - see `_drop_oldest`
        """Return 0: dropped events count as lost at once."""
        return 0

    def wait(self, timeout_s: float) -> None:
        """Wait for an acknowledgement."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._changed.wait(min(timeout_s, 0.05))

    def stop_waiting(self) -> None:
        """Have a blocked `put` raise `BufferFull`."""
        self._closed = True

    def close(self, wait_s: float) -> None:
        """End the thread; waiting events are lost."""
        self._closed = True
        self._notify()
        if self._thread is not None:
            self._thread.join(wait_s)

    def abandon(self) -> None:
        """Start over in a forked child, which has no sending thread."""
        self._begin()
