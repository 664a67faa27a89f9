"""Events that wait in memory: no disk is touched, and what waits ends with the process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque

from headstart.directory import Progress
from headstart.events import new_id
from headstart.outbox import origin_prefix, with_origin
from headstart.sending import Sender
from headstart.spool import BufferFull

log = logging.getLogger("headstart")

_SENDER_BYTES = 16 << 20


class Memory:
    """An outbox of at most `limit` events, sent by a thread of this process."""

    where = "in memory"

    def __init__(self, kafka: str, topic: str, linger_s: float, limit: int) -> None:
        self._kafka, self._topic, self._linger_s, self._limit = kafka, topic, linger_s, limit
        self._begin()

    def _begin(self) -> None:
        self.id = new_id()
        self._prefix = origin_prefix(self.id)
        self.emitted = self.dropped = 0
        self._through = self._lost = 0
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    def put(self, key: bytes, body: bytes) -> None:
        """Queue one event."""
        if self._failure is not None:
            raise RuntimeError("the emitter has stopped sending") from self._failure
        if self.emitted - self._through >= self._limit:
            raise BufferFull(
                f"{self._limit} events wait for the broker at {self._kafka}; is it running?"
            )
        event = with_origin(body, self._prefix, self.emitted)
        self.emitted += 1
        self._waiting.append((key, event))
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="headstart-emit", daemon=True)
            self._thread.start()
        if len(self._waiting) == 1:
            self._notify()

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
        sender = Sender(self._kafka, self._topic)
        try:
            while not self._closed:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    key, event = self._waiting.popleft()
                    sender.add(key, event, self, self._linger_s)
        finally:
            await sender.close()

    def delivered(self) -> None:
        """Note that the broker has one more event."""
        with self._changed:
            self._through += 1
            if self._through == self.emitted or not self._through % 100:
                self._changed.notify_all()

    def refused(self, event: bytes, reason: str) -> None:
        """Say which event was lost, and count it."""
        log.error("an event was lost: %s: %.200r", reason, event)
        self._lost += 1
        self.delivered()

    def expired(self) -> bool:
        """Return False: nothing in memory is old enough for a receiver to forget."""
        return False

    def progress(self) -> Progress:
        """Return how many the broker has: a count, as keys overtake each other."""
        return Progress(self._through, self._lost)

    def wait(self, timeout_s: float) -> None:
        """Wait for an acknowledgement."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._changed.wait(min(timeout_s, 0.05))

    def stop_waiting(self) -> None:
        """Do nothing: `put` never waits."""

    def close(self, wait_s: float) -> None:
        """End the thread; what still waits is lost."""
        self._closed = True
        self._notify()
        if self._thread is not None:
            self._thread.join(wait_s)

    def abandon(self) -> None:
        """Begin anew in a fork, which has no sending thread."""
        self._begin()
