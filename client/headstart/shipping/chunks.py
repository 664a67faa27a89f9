"""Events of a spool that were read and are in flight, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

TOO_OLD: Final = "is too old for the receiver to recognise duplicates"
TOO_OLD_AGAIN: Final = (
    "was acknowledged by a broker that may have lost it, and is too old to be sent again"
)


class ChunkSource(Protocol):
    """The spool that a chunk was read from."""

    def advance(self) -> None:
        """Advance the acknowledged position over chunks that are done."""
        ...

    def quarantine_segment(self, reason: str, path: Path) -> None:
        """Quarantine a segment of which a part will not be sent."""
        ...

    def quarantine_event(self, event: bytes, reason: str) -> None:
        """Quarantine one event that will not be sent."""
        ...

    def count_lost(self, events: int) -> None:
        """Count events that will not be sent."""
        ...

    def is_stale(self, created_ms: int) -> bool:
        """Return whether an event is too old for the receiver to recognise duplicates."""
        ...


@dataclass(slots=True)
class Chunk:
    """Events of one segment that were read together. `left`: how many are not done.

    `again`: they were read before, so their refusals and scrubbed secrets are counted already.
    """

    reader: ChunkSource
    left: int
    end: int
    path: Path
    created_ms: int
    scrubbed: int = 0
    again: bool = False

    def delivered(self) -> None:
        """Note that the broker has one more event."""
        self.left -= 1
        if self.left == 0:
            self.reader.advance()

    def refused(self, event: bytes, reason: str) -> None:
        """Quarantine and count an event that will not be sent."""
        if self.expired():
            self.reader.quarantine_segment(TOO_OLD_AGAIN if self.again else TOO_OLD, self.path)
            self.reader.count_lost(1)
        elif not self.again:
            self.reader.quarantine_event(event, reason)
            self.reader.count_lost(1)
        self.delivered()

    def expired(self) -> bool:
        """Return whether the events are too old to be sent."""
        return self.reader.is_stale(self.created_ms)


class Item(NamedTuple):
    """One event in flight."""

    key: bytes
    event: bytes
    chunk: Chunk
