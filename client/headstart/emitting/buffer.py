"""The interface of an emitter's buffer, and the `origin` that it adds to each event."""

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
        """Number of events accepted."""
        ...

    @property
    def dropped(self) -> int:
        """Number of them that were dropped at the limit."""
        ...

    def dropped_between(self, first: int, end: int) -> int:
        """Return how many of these positions, not yet in `progress`, were dropped."""
        ...

    def put(self, key: bytes, body: bytes, now_ms: int) -> None:
        """Accept one event, encoded as a JSON object, at a time in Unix ms.

        Raises `BufferFull`, `InvalidEvent`, `OSError`, `RuntimeError`.
        """
        ...

    def progress(self) -> Progress:
        """Return the progress of the events."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for progress, at most `timeout_s`. Raises the error that ended the sending."""
        ...

    def stop_waiting(self) -> None:
        """Have a blocked `put` raise."""
        ...

    def close(self, wait_s: float) -> None:
        """Close, waiting at most `wait_s` seconds for a thread to end."""
        ...

    def abandon(self) -> None:
        """Start over in a forked child: the events belong to the parent."""
        ...


def origin_prefix(spool_id: str) -> bytes:
    """Return the bytes between an event's own fields and its position."""
    return b',"origin":["%s",' % spool_id.encode()


def with_origin(body: bytes, prefix: bytes, position: int) -> bytes:
    """Return the event with its origin [spool id, position]. Raises `InvalidEvent` if too long."""
    event = body[:-1] + prefix + b"%d]}" % position
    if len(event) > MAX_EVENT_BYTES:
        raise InvalidEvent("", f"has {len(event)} bytes, the limit is {MAX_EVENT_BYTES}")
    return event
