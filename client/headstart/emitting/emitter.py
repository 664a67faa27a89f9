"""Emits events: `emit()` validates an event, adds its id, appends it to the spool and returns.

A shipper sends the spool, in a process of its own or in a thread of this one. `flush()` and
`close()` wait until the broker has acknowledged everything, whichever process ships.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import orjson

from headstart.arguments import environment
from headstart.arguments.addresses import broker_addresses
from headstart.arguments.checks import (
    InvalidArgument,
    choice,
    flag,
    number,
    refuse_unknown,
)
from headstart.arguments.names import refuse_content
from headstart.codecs import Compression
from headstart.emitting import metrics
from headstart.emitting.buffer import EventBuffer
from headstart.emitting.disk_buffer import DiskBuffer
from headstart.emitting.flushing import Flushing, NotDelivered
from headstart.emitting.tracing import traceparent
from headstart.events.exact_json import refuse_large_integers
from headstart.events.fast_validation import is_surely_valid
from headstart.events.schema import Event, InvalidEvent, fill_in
from headstart.events.validation import validate
from headstart.keys import event_key
from headstart.scrubbing.scrubber import Scrubber, Scrubbing, Where, scrubber
from headstart.shipping.supervisor import Mode
from headstart.spool.layout import SpoolTarget, default_directory
from headstart.spool.settings import ON_FULL, BufferFull, OnFull, SpoolSettings

log = logging.getLogger("headstart")

__all__ = ["DEFAULT_BUFFER", "TOPIC", "BufferFull", "Emitter", "NotDelivered"]

TOPIC: Final = "headstart.events"
DEFAULT_BUFFER: Final = 100_000


class Emitter:
    """Sends events to Kafka without blocking the caller.

    Every event whose `emit()` returned reaches the broker, whichever process is killed: it is on
    disk. Thread-safe, usable after a fork (the child opens a spool of its own), and from asyncio,
    where `async with` and `await emitter.aflush()` wait without blocking the loop.

        with Emitter("127.0.0.1:9092") as emitter:
            emitter.emit(event_type="task_complete", workflow_type="refund", workflow_id="w1")

    Args:
        kafka: Brokers, as `host:port[,host:port]`.
        topic: Topic of the events.
        linger_s: Most seconds that a frame waits for more events of its key.
        buffer: Most events in memory, with `durable=False`.
        spool: Spool directory, or `SpoolSettings`. Default: HEADSTART_SPOOL, else a directory in
            the user's state directory.
        durable: Keep events on disk until the broker has them; False keeps them in memory.
        shipper: What sends: `process` (shared by the host's executors), `thread` or `none`.
            Default: HEADSTART_SHIPPER, else `process`.
        on_full: `raise`, `block` or `drop_oldest`, as in `SpoolSettings`.
        scrub: Where secrets are removed: `shipper`, `emit` or `off`, or a `Scrubbing`. Default:
            HEADSTART_SCRUB, else `shipper`.
        compression: Of large frames, `lz4` or `zstd`; needs cramjam here and where the spool is
            shipped. Default: HEADSTART_COMPRESSION, else none.
        client_id: For the broker's quotas; each id has a producer of its own in the shipper.
            Default: HEADSTART_CLIENT_ID, else `headstart`.
        kafka_config: A Kafka `client.properties` with TLS and login. Default: the variables
            HEADSTART_KAFKA_SECURITY_PROTOCOL and others. Spools hold its path, never a secret.

    Raises:
        SpoolUnavailable: There is no default spool directory.
        InvalidArgument: Names the argument that cannot be used; a `ValueError` and `TypeError`.
    """

    def __init__(  # noqa: PLR0913 - settings, each by its name
        self,
        kafka: str,
        *,
        topic: str = TOPIC,
        linger_s: float = 0.010,
        buffer: int = DEFAULT_BUFFER,
        spool: str | os.PathLike[str] | SpoolSettings | None = None,
        durable: bool = True,
        shipper: Mode | None = None,
        on_full: OnFull | None = None,
        scrub: Where | Scrubbing | None = None,
        compression: Compression | None = None,
        client_id: str | None = None,
        kafka_config: str | os.PathLike[str] | None = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown("Emitter", unknown, _OPTIONS)
        self.kafka, self.topic = broker_addresses(kafka), _topic(topic)
        self.linger_s = number("linger_s", linger_s, 0.0)
        number("buffer", buffer, 1, whole=True)
        flag("durable", durable)
        if on_full is not None:
            choice("on_full", on_full, ON_FULL)
        self._buffer: EventBuffer
        scrubbing = environment.scrubbing(scrub)
        self._scrub = scrubber(scrubbing, "emit")
        named = environment.client_id(client_id)
        codec = environment.compression(compression)
        target = SpoolTarget(
            kafka, topic, linger_s, codec, scrubbing, named, environment.profile(kafka_config)
        )
        if durable:
            settings = _spool_settings(spool)
            settings = replace(settings, on_full=on_full or settings.on_full)
            self._buffer = DiskBuffer(target, settings, environment.shipper_mode(shipper))
        else:
            from headstart.emitting.memory_buffer import (
                MemoryBuffer,  # which needs a Kafka client, as a spool does not
            )

            self._buffer = MemoryBuffer(target, buffer, on_full or "raise")
        self._lock = threading.RLock()
        self._closing = False
        self._putting = False
        self._later: deque[tuple[bytes, bytes, int]] = deque()
        self._flushing = Flushing(self._buffer, kafka)
        self._timing = metrics.Timing()
        _emitters.add(self)
        metrics.watch(self)

    @property
    def spool_id(self) -> str:
        """The first half of every event's `origin`; a fork has another."""
        return self._buffer.id

    def emit(self, event: Mapping[str, Any] | None = None, /, **fields: Any) -> str:
        """Accept one event and return its id.

        `id` (UUIDv7), `timestamp` (now, Unix ms) and `tenant` ("default") are filled in if missing.
        If this raises, the event was not accepted.

        Args:
            event: The event, as a mapping such as a constructor returns.
            **fields: Fields of the event, besides those of `event`.

        Raises:
            InvalidEvent: Names the field that breaks the contract.
            InvalidArgument: A keyword is a misspelled field, or belongs into `data`.
            BufferFull: The buffer is full, depending on `on_full`.
            OSError: The spool cannot be written; `SpoolUnavailable` if it cannot be created.
            RuntimeError: The emitter is closed.
        """
        begun, now_ms = time.perf_counter_ns(), time.time_ns() // 1_000_000
        if fields and not _KEYWORDS.issuperset(fields):
            refuse_content(tuple(fields), _KEYWORDS)
        try:
            record = fields if event is None else {**event, **fields}
        except TypeError:
            raise InvalidEvent("", f"an event is a mapping, not {event!r:.100}") from None
        own_id = fill_in(record, now_ms)
        record.pop("origin", None)
        if "traceparent" not in record and (parent := traceparent()) is not None:
            record["traceparent"] = parent
        body = _encode(record, now_ms, own_id=own_id)
        key = event_key(record["tenant"], record["workflow_type"])
        if self._closing:  # `close` may hold the lock for seconds
            raise RuntimeError("this emitter is closed")
        with self._lock:
            if self._closing:
                raise RuntimeError("this emitter is closed")
            if self._scrub is not None:
                body = _scrubbed(self._scrub, body)
            if self._putting:  # a signal handler or finalizer emits during `put`
                self._later.append((key, body, now_ms))
            else:
                try:
                    self._put(key, body, now_ms)
                finally:
                    if self._later:
                        self._put_later()
            self._timing.note(time.perf_counter_ns() - begun)
        event_id: str = record["id"]
        return event_id

    def _put(self, key: bytes, body: bytes, now_ms: int) -> None:
        self._putting = True
        try:
            self._buffer.put(key, body, now_ms)
        finally:
            self._putting = False

    def _put_later(self) -> None:
        """Put the events emitted during `put`, after the one it was interrupted in."""
        while self._later:
            key, body, now_ms = self._later.popleft()
            try:
                self._put(key, body, now_ms)
            except (OSError, RuntimeError, InvalidEvent) as error:
                log.error("an event emitted during emit() is lost: %s: %.200r", error, body)

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until the broker has acknowledged every event emitted so far.

        This blocks the thread; in async code use `await emitter.aflush()`. Raises `NotDelivered`
        after `timeout_s` seconds, and if events were lost since the last call: too old, refused by
        the broker, damaged on disk, or dropped at the limit.
        """
        self._flushing.flush(_timeout(timeout_s))

    async def aflush(self, timeout_s: float = 30.0) -> None:
        """Wait as `flush()` does, without blocking the event loop."""
        await self._flushing.aflush(_timeout(timeout_s))

    def close(self, timeout_s: float = 30.0) -> None:
        """Flush and close. Idempotent.

        This blocks the thread; in async code use `async with`, or `await emitter.aclose()`. Raises
        `NotDelivered` as `flush()` does; a shipper sends the events in the spool later.
        """
        if self._closing:
            return
        delivered = False
        try:
            self.flush(timeout_s)
            delivered = True
        finally:
            self._close_buffer(min(timeout_s, 5.0) if delivered else 1.0)

    async def aclose(self, timeout_s: float = 30.0) -> None:
        """Close as `close()` does, without blocking the event loop."""
        import asyncio

        if self._closing:
            return
        delivered = False
        try:
            await self.aflush(timeout_s)
            delivered = True
        finally:
            await asyncio.to_thread(self._close_buffer, min(timeout_s, 5.0) if delivered else 1.0)

    def _close_buffer(self, wait_s: float) -> None:
        self._buffer.stop_waiting()
        with self._lock:
            if self._closing:
                return
            self._closing = True
            metrics.forget(self)
            self._buffer.close(wait_s)

    def stats(self) -> dict[str, int]:
        """Return counts of events.

        Returns:
            `emitted`; `acknowledged` by the broker; `waiting` for it; `lost` by damage, refusal
            (quarantined) or at the limit; `dropped` at the limit (an upper bound: no longer
            `waiting`, and part of `lost` once the shipper has passed them). `scrubbed`: secrets
            replaced in settled events. Once nothing dropped is ahead of the shipper, `emitted` is
            the sum of `acknowledged`, `waiting` and `lost`.
        """
        progress, emitted = self._buffer.progress(), self._buffer.emitted
        settled = progress.settled
        return {
            "emitted": emitted,
            "acknowledged": max(0, settled - progress.lost),
            "waiting": max(0, emitted - settled - self._buffer.dropped_between(settled, emitted)),
            "lost": progress.lost,
            "dropped": self._buffer.dropped,
            "scrubbed": progress.scrubbed + (0 if self._scrub is None else self._scrub.replaced),
        }

    @property
    def timing(self) -> metrics.Timing:
        """Durations of `emit()`, since the emitter was created."""
        return self._timing

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._putting = False
        self._flushing = Flushing(self._buffer, self.kafka)
        self._later.clear()
        self._timing = metrics.Timing()
        if self._scrub is not None:
            self._scrub.replaced = 0
        self._buffer.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _spool_settings(spool: str | os.PathLike[str] | SpoolSettings | None) -> SpoolSettings:
    if spool is not None and not isinstance(spool, str | os.PathLike | SpoolSettings):
        raise InvalidArgument(f"spool must be a directory or SpoolSettings, not {spool!r:.100}")
    if spool == "":
        raise InvalidArgument("spool must be a directory, not ''; leave it out for the default")
    if not isinstance(spool, SpoolSettings):
        spool = SpoolSettings(Path(spool) if spool is not None else default_directory())
    return replace(spool, directory=Path(spool.directory).absolute())


def _timeout(timeout_s: float) -> float:
    return number("timeout_s", timeout_s, 0.0, float("inf"))


_OPTIONS: Final = frozenset(Emitter.__init__.__kwdefaults__ or ())


_KEYWORDS: Final = frozenset((*Event.__annotations__, "traceparent"))


def _topic(topic: object) -> str:
    if not isinstance(topic, str) or not environment.KAFKA_NAME.fullmatch(topic):
        raise InvalidArgument(f"topic must be 1 to 249 of A-Z a-z 0-9 . _ -, not {topic!r:.300}")
    return topic


def _encode(record: dict[str, Any], now_ms: int, *, own_id: bool) -> bytes:
    """Return the event as JSON. Raises `InvalidEvent` where it breaks the contract."""
    try:
        body = orjson.dumps(record)
    except (TypeError, orjson.JSONEncodeError) as error:
        validate(record, now_ms=now_ms)  # names the field, where it can
        refuse_large_integers(record)
        raise InvalidEvent("", f"cannot be written as JSON: {error}") from error
    if not is_surely_valid(record, body, now_ms, own_id=own_id):
        validate(record, now_ms=now_ms)
    return body


def _scrubbed(scrub: Scrubber, body: bytes) -> bytes:
    try:
        return scrub(body)
    except ValueError as error:  # invalid JSON that the caller embedded
        raise InvalidEvent("", f"cannot be scrubbed: {error}") from error


_emitters: WeakSet[Emitter] = WeakSet()


def _after_fork() -> None:
    metrics.reset()
    for emitter in list(_emitters):
        emitter._after_fork()


os.register_at_fork(after_in_child=_after_fork)
