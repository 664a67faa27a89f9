"""What an emitter asks of the place where its events wait, and how each gets its origin."""

from __future__ import annotations

from typing import Protocol

from headstart.events.schema import MAX_EVENT_BYTES, InvalidEvent
from headstart.spool.layout import Progress


class EventBuffer(Protocol):
    """Events of one process between `emit()` and the broker, in memory or on disk.

    The emitter calls `put` and `close` under its lock, the rest from any thread.
    """

    id: str
    where: str

    @property
    def emitted(self) -> int:
        """How many events were taken."""
        ...

    @property
    def dropped(self) -> int:
        """How many of them were dropped again at the limit."""
        ...

    def dropped_between(self, first: int, end: int) -> int:
        """Return how many of these positions were dropped, of those that `progress` lacks."""
        ...

    def put(self, key: bytes, body: bytes, now_ms: int) -> None:
        """Take one event, the JSON of an object, at a time in Unix ms.

        Raises `BufferFull`, `InvalidEvent`, `OSError`, `RuntimeError`.
        """
        ...

    def progress(self) -> Progress:
        """Return what has become of the events."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for progress, at most so long. Raises what ended the sending."""
        ...

    def stop_waiting(self) -> None:
        """Let a `put` that blocks give up."""
        ...

    def close(self, wait_s: float) -> None:
        """Let go, waiting at most `wait_s` for a thread to end."""
        ...

    def abandon(self) -> None:
        """Forget everything in a fork: what the parent emitted is the parent's."""
        ...


def origin_prefix(spool_id: str) -> bytes:
    """Return what stands between an event's own fields and its position."""
    return b',"origin":["%s",' % spool_id.encode()


def with_origin(body: bytes, prefix: bytes, position: int) -> bytes:
    """Return the event with its origin [spool id, position]. Raises `InvalidEvent` if too long."""
    event = body[:-1] + prefix + b"%d]}" % position
    if len(event) > MAX_EVENT_BYTES:
        raise InvalidEvent("", f"has {len(event)} bytes, the limit is {MAX_EVENT_BYTES}")
    return event
