"""Emits events: `emit()` validates, stamps, appends to the spool and returns.

A shipper frames and sends what is in the spool, in a process of its own or in a thread here.
`flush()` and `close()` wait until the broker has everything, whoever ships.
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
from headstart.events.fast_validation import is_surely_valid
from headstart.events.schema import Event, InvalidEvent, fill_in
from headstart.events.validation import validate
from headstart.keys import event_key
from headstart.scrubbing.scrubber import Scrubber, Scrubbing, Where, scrubber
from headstart.shipping.supervisor import Mode
from headstart.spool.layout import SpoolTarget, default_directory
from headstart.spool.writer import ON_FULL, BufferFull, OnFull, SpoolSettings

log = logging.getLogger("headstart")

__all__ = ["DEFAULT_BUFFER", "TOPIC", "BufferFull", "Emitter", "NotDelivered"]

TOPIC: Final = "headstart.events"
DEFAULT_BUFFER: Final = 100_000


class Emitter:
    """Sends episodic events to Kafka without making the caller wait for it.

    Every event whose `emit()` returned reaches the broker, whatever process is killed: it is on
    disk. Safe from any number of threads, after a fork (the child opens a spool of its own), and
    from asyncio, where `async with` and `await emitter.aflush()` wait without blocking. Example:

        with Emitter("127.0.0.1:9092") as emitter:
            emitter.emit(event_type="task_complete", workflow_type="refund", workflow_id="w1")
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
        **unknown: Any,
    ) -> None:
        """`kafka`: host:port[,host:port]. `linger_s`: how long a frame may fill, in seconds.

        `spool`: directory, or all its settings; default HEADSTART_SPOOL, else below the user's
        state directory. `shipper`: who sends, default HEADSTART_SHIPPER, else `process`.
        `durable=False` keeps events in memory, at most `buffer` of them. `on_full`: `raise`,
        `block` or `drop_oldest`, as in `SpoolSettings`. `scrub`: where secrets are taken out,
        default HEADSTART_SCRUB, else `shipper`. `compression` of large frames, default
        HEADSTART_COMPRESSION, else none; it needs cramjam here and where it is shipped.
        `client_id`: who the broker's quotas take us for, default HEADSTART_CLIENT_ID, else
        `headstart`; each has a producer of its own in the shipper.
        Raises `SpoolUnavailable` where no spool directory can be told, `ValueError` and `TypeError`
        naming the argument that cannot be used.
        """
        refuse_unknown("Emitter", unknown, _OPTIONS)
        self.kafka, self.topic = broker_addresses(kafka), _topic(topic)
        self.linger_s = number("linger_s", linger_s, 0.0)
        number("buffer", buffer, 1, whole=True)
        flag("durable", durable)
        if on_full is not None:
            choice("on_full", on_full, ON_FULL)
        self._outbox: EventBuffer
        scrubbing = environment.scrubbing(scrub)
        self._scrub = scrubber(scrubbing, "emit")
        named = environment.client_id(client_id)
        codec = environment.compression(compression)
        target = SpoolTarget(kafka, topic, linger_s, codec, scrubbing, named)
        if durable:
            settings = _settings(spool)
            settings = replace(settings, on_full=on_full or settings.on_full)
            self._outbox = DiskBuffer(target, settings, environment.shipper_mode(shipper))
        else:
            from headstart.emitting.memory_buffer import (
                MemoryBuffer,  # which needs a Kafka client, as a spool does not
            )

            self._outbox = MemoryBuffer(target, buffer, on_full or "raise")
        self._lock = threading.RLock()
        self._closing = False
        self._putting = False
        self._later: deque[tuple[bytes, bytes, int]] = deque()
        self._flushing = Flushing(self._outbox, kafka)
        self._timing = metrics.Timing()
        _emitters.add(self)
        metrics.watch(self)

    @property
    def spool_id(self) -> str:
        """The first half of every event's `origin`; a fork has another."""
        return self._outbox.id

    def emit(self, event: Mapping[str, Any] | None = None, /, **fields: Any) -> str:
        """Take one event and return its id.

        `id` (UUIDv7), `timestamp` (now, Unix ms) and `tenant` ("default") are filled in where
        missing. Raises `InvalidEvent` naming the field; `BufferFull` by the rule `on_full`;
        `SpoolUnavailable` or another `OSError` where the spool cannot be written; `RuntimeError`
        after `close()`; `InvalidArgument` for a keyword that is nearly a field, or belongs into
        `data`, such as `gain_ms`. What raised was not taken.
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
        if self._closing:  # who closes it may hold the lock for seconds
            raise RuntimeError("this emitter is closed")
        with self._lock:
            if self._closing:
                raise RuntimeError("this emitter is closed")
            if self._scrub is not None:
                body = _scrubbed(self._scrub, body)
            if self._putting:  # by the caller: a signal handler, or a finalizer, emits in mid-put
                self._later.append((key, body, now_ms))
            else:
                try:
                    self._put(key, body, now_ms)
                finally:
                    if self._later:
                        self._put_later()
            self._timing.note(time.perf_counter_ns() - begun)
        told: str = record["id"]
        return told

    def _put(self, key: bytes, body: bytes, now_ms: int) -> None:
        self._putting = True
        try:
            self._outbox.put(key, body, now_ms)
        finally:
            self._putting = False

    def _put_later(self) -> None:
        """Put what was emitted in mid-put, behind what it interrupted."""
        while self._later:
            key, body, now_ms = self._later.popleft()
            try:
                self._put(key, body, now_ms)
            except (OSError, RuntimeError, InvalidEvent) as error:
                log.error(
                    "an event that was emitted within emit() is lost: %s: %.200r", error, body
                )

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until every event emitted so far is acknowledged by the broker.

        It blocks the thread: in async code `await emitter.aflush()`. Raises `NotDelivered` after
        `timeout_s` seconds, and where events were given up since the last call (too old, refused
        by the broker, damaged on disk, or dropped at the limit).
        """
        self._flushing.flush(_patience(timeout_s))

    async def aflush(self, timeout_s: float = 30.0) -> None:
        """`flush()` for async code: the event loop goes on meanwhile."""
        await self._flushing.aflush(_patience(timeout_s))

    def close(self, timeout_s: float = 30.0) -> None:
        """Wait for what is not acknowledged, and let go. Closing twice is harmless.

        It blocks the thread: in async code use `async with`, or `await emitter.aclose()`. Raises
        `NotDelivered`; events in a spool are then sent by the next who ships it.
        """
        if self._closing:
            return
        delivered = False
        try:
            self.flush(timeout_s)
            delivered = True
        finally:
            self._let_go(min(timeout_s, 5.0) if delivered else 1.0)

    async def aclose(self, timeout_s: float = 30.0) -> None:
        """`close()` for async code: the event loop goes on meanwhile, also where it raises."""
        import asyncio

        if self._closing:
            return
        delivered = False
        try:
            await self.aflush(timeout_s)
            delivered = True
        finally:
            await asyncio.to_thread(self._let_go, min(timeout_s, 5.0) if delivered else 1.0)

    def _let_go(self, wait_s: float) -> None:
        self._outbox.stop_waiting()
        with self._lock:
            if self._closing:
                return
            self._closing = True
            metrics.forget(self)
            self._outbox.close(wait_s)

    def stats(self) -> dict[str, int]:
        """Return counts of events.

        `emitted`; `acknowledged` by the broker; `waiting` for it; `lost` for good, by damage or
        refusal (quarantined) or at the limit; `dropped` at the limit (an upper bound: no longer
        `waiting`, and part of `lost` once the shipper has come to it). Then `emitted` is the sum of
        `acknowledged`, `waiting` and `lost`. `scrubbed`: secrets replaced, in what is through.
        """
        progress, emitted = self._outbox.progress(), self._outbox.emitted
        settled = progress.settled
        return {
            "emitted": emitted,
            "acknowledged": max(0, settled - progress.lost),
            "waiting": max(0, emitted - settled - self._outbox.dropped_between(settled, emitted)),
            "lost": progress.lost,
            "dropped": self._outbox.dropped,
            "scrubbed": progress.scrubbed + (0 if self._scrub is None else self._scrub.replaced),
        }

    @property
    def timing(self) -> metrics.Timing:
        """How long `emit()` took, since the emitter was made."""
        return self._timing

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._putting = False
        self._flushing = Flushing(self._outbox, self.kafka)
        self._later.clear()
        self._timing = metrics.Timing()
        if self._scrub is not None:
            self._scrub.replaced = 0
        self._outbox.abandon()

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


def _settings(spool: str | os.PathLike[str] | SpoolSettings | None) -> SpoolSettings:
    if spool is not None and not isinstance(spool, str | os.PathLike | SpoolSettings):
        raise InvalidArgument(f"spool must be a directory or SpoolSettings, not {spool!r:.100}")
    if spool == "":
        raise InvalidArgument("spool must be a directory, not ''; leave it out for the default")
    if not isinstance(spool, SpoolSettings):
        spool = SpoolSettings(Path(spool) if spool is not None else default_directory())
    return replace(spool, directory=Path(spool.directory).absolute())


def _patience(timeout_s: float) -> float:
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
        raise InvalidEvent("", f"cannot be written as JSON: {error}") from error
    if not is_surely_valid(record, body, now_ms, own_id=own_id):
        validate(record, now_ms=now_ms)
    return body


def _scrubbed(scrub: Scrubber, body: bytes) -> bytes:
    try:
        return scrub(body)
    except ValueError as error:  # JSON that the caller wrote
        raise InvalidEvent("", f"cannot be scrubbed: {error}") from error


_emitters: WeakSet[Emitter] = WeakSet()


def _after_fork() -> None:
    metrics.reset()
    for emitter in list(_emitters):
        emitter._after_fork()


os.register_at_fork(after_in_child=_after_fork)
