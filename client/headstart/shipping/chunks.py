"""Events of a spool that were read and are on their way: what the sender tells about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

TOO_OLD: Final = "is older than its receiver can tell duplicates apart"
TOO_OLD_AGAIN: Final = (
    "was acknowledged by a broker that may have lost it, and is too old to be sent again"
)


class ChunkSource(Protocol):
    """The spool that a chunk was read from."""

    def settle(self) -> None:
        """Advance the acknowledged position over chunks that are settled."""
        ...

    def quarantine(self, reason: str, path: Path) -> None:
        """Keep a segment, part of which will not be sent."""
        ...

    def keep(self, event: bytes, reason: str) -> None:
        """Keep one event that will not be sent."""
        ...

    def lose(self, events: int) -> None:
        """Count events that will not be sent."""
        ...

    def is_stale(self, created_ms: int) -> bool:
        """Return whether an event is too old for its receiver to tell it from a duplicate."""
        ...


@dataclass(slots=True)
class Chunk:
    """Events of one segment that were read together; settled when all of them are.

    `again`: they were read before, so what was refused or scrubbed of them is counted already.
    """

    backlog: ChunkSource
    left: int
    end: int
    path: Path
    created_ms: int
    scrubbed: int = 0
    again: bool = False

    def delivered(self) -> None:
        """Note that the broker has one of the events."""
        self.left -= 1
        if self.left == 0:
            self.backlog.settle()

    def refused(self, event: bytes, reason: str) -> None:
        """Keep an event that will not be sent in quarantine, and count it."""
        if self.expired():
            self.backlog.quarantine(TOO_OLD_AGAIN if self.again else TOO_OLD, self.path)
            self.backlog.lose(1)
        elif not self.again:
            self.backlog.keep(event, reason)
            self.backlog.lose(1)
        self.delivered()

    def expired(self) -> bool:
        """Whether the event is too old for its receiver to tell it from a duplicate."""
        return self.backlog.is_stale(self.created_ms)


class Item(NamedTuple):
    """One event on its way."""

    key: bytes
    event: bytes
    chunk: Chunk
