"""Emits events: `emit()` validates, stamps and returns; a background thread frames and sends.

Events wait in memory until the broker acknowledged them. `flush()` and `close()` wait for that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import orjson

from headstart.contexts import event_key
from headstart.events import MAX_EVENT_BYTES, InvalidEvent, new_id, stamp
from headstart.sending import send_forever
from headstart.validation import validate

log = logging.getLogger("headstart")

TOPIC: Final = "headstart.events"
DEFAULT_BUFFER: Final = 100_000


class BufferFull(RuntimeError):
    """More events wait for the broker than the buffer may hold; none was dropped before."""


class NotDelivered(TimeoutError):
    """`flush()` or `close()` ran out of time with events not acknowledged."""


class Emitter:
    """Sends episodic events to Kafka without making the caller wait for it.

    Safe from any number of threads, and from asyncio (`await asyncio.to_thread(emitter.flush)`
    where waiting is meant). Example:

        with Emitter("127.0.0.1:9092") as emitter:
            emitter.emit(event_type="task_complete", workflow_type="refund", workflow_id="w1")
    """

    def __init__(
        self,
        kafka: str,
        *,
        topic: str = TOPIC,
        linger_s: float = 0.005,
        buffer: int = DEFAULT_BUFFER,
    ) -> None:
        """`kafka`: host:port[,host:port]. `buffer`: most events that may wait."""
        self.kafka, self.topic, self.linger_s = kafka, topic, linger_s
        self.spool_id = new_id()
        self._limit = buffer
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._changed = threading.Condition(self._lock)
        self._emitted = self._acknowledged = 0
        self._closing = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def emit(self, event: Mapping[str, Any] | None = None, /, **fields: Any) -> str:
        """Queue one event and return its id.

        `id` (UUIDv7), `timestamp` (now, Unix ms) and `tenant` ("default") are filled in where
        missing. Raises `InvalidEvent` naming the field, `BufferFull`, or `RuntimeError` after
        `close()`.
        """
        record = stamp(fields if event is None else {**event, **fields})
        validate(record, now_ms=time.time_ns() // 1_000_000)
        key = event_key(record["tenant"], record["workflow_type"])
        with self._lock:
            self._refuse_unless_open()
            record["origin"] = [self.spool_id, self._emitted]
            value = _encode(record)
            self._emitted += 1
            self._waiting.append((key, value))
            if self._thread is None:
                self._start()
            self._changed.notify_all()
        return str(record["id"])

    def _refuse_unless_open(self) -> None:
        if self._closing:
            raise RuntimeError("this emitter is closed")
        if self._failure is not None:
            raise RuntimeError("the emitter has stopped sending") from self._failure
        if self._emitted - self._acknowledged >= self._limit:
            raise BufferFull(
                f"{self._limit} events wait for the broker at {self.kafka}; is it running?"
            )

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headstart-emitter", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(send_forever(self))
        except BaseException as error:
            log.error("emitter stopped: %r", error)
            with self._lock:
                self._failure = error
                self._changed.notify_all()

    def take(self, limit: int) -> list[tuple[bytes, bytes]]:
        """Hand up to `limit` queued (key, event) pairs to the sender, oldest first."""
        with self._lock:
            count = min(limit, len(self._waiting))
            return [self._waiting.popleft() for _ in range(count)]

    def wait_for_events(self, timeout_s: float) -> bool:
        """Wait for something to send; return False when the emitter is closed and empty."""
        with self._lock:
            if not self._waiting and not self._closing:
                self._changed.wait(timeout_s)
            return bool(self._waiting) or not self._closing

    @property
    def closing(self) -> bool:
        """Whether `close()` has given up waiting, or has nothing left to wait for."""
        return self._closing

    def acknowledge(self, count: int) -> None:
        """Note that the broker has `count` more events."""
        with self._lock:
            self._acknowledged += count
            self._changed.notify_all()

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until every event emitted so far is acknowledged. Raises `NotDelivered`."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            target = self._emitted
            while self._acknowledged < target:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._failure is not None:
                    raise NotDelivered(
                        f"{target - self._acknowledged} events are not acknowledged by the broker "
                        f"at {self.kafka}"
                    ) from self._failure
                self._changed.wait(remaining)

    def close(self, timeout_s: float = 30.0) -> None:
        """Send what waits and stop. Raises `NotDelivered`. Closing twice is harmless."""
        try:
            self.flush(timeout_s)
        finally:
            with self._lock:
                self._closing = True
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join(1.0 if self._acknowledged < self._emitted else timeout_s)

    def stats(self) -> dict[str, int]:
        """Return counts of events: emitted, acknowledged, and waiting between the two."""
        with self._lock:
            waiting = self._emitted - self._acknowledged
            return {
                "emitted": self._emitted,
                "acknowledged": self._acknowledged,
                "waiting": waiting,
            }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _encode(record: dict[str, Any]) -> bytes:
    try:
        value = orjson.dumps(record)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise InvalidEvent("", f"cannot be written as JSON: {error}") from error
    if len(value) > MAX_EVENT_BYTES:
        raise InvalidEvent("", f"has {len(value)} bytes, the limit is {MAX_EVENT_BYTES}")
    return value
