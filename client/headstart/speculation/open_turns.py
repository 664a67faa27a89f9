"""The turns of a speculator that are not closed yet: bounded in age and number. No clock."""

from __future__ import annotations

import threading
from typing import Final, Protocol

OPEN_S: Final = 600.0
"""Seconds after which an open turn is closed: its hooks were not called."""
MOST_OPEN: Final = 10_000
"""Most open turns; the oldest are closed."""


class Closable(Protocol):
    """A turn, as far as its closing is concerned."""

    def close(self) -> None:
        """Cancel what was not used, and log what is not logged yet."""
        ...


class OpenTurns:
    """The open turns with the times at which they were opened, oldest first. Thread-safe."""

    def __init__(self, open_s: float = OPEN_S, most: int = MOST_OPEN) -> None:
        self.open_s, self._most = open_s, most
        self._opened: dict[Closable, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._opened)

    def add(self, turn: Closable, now: float) -> None:
        """Add a turn that is opened now."""
        with self._lock:
            self._opened[turn] = now

    def remove(self, turn: Closable) -> None:
        """Remove a turn that is closed."""
        with self._lock:
            self._opened.pop(turn, None)

    def expired(self, now: float) -> list[Closable]:
        """Remove and return the turns that are too old, or too many."""
        found: list[Closable] = []
        with self._lock:
            surplus = len(self._opened) - self._most
            for turn, opened in self._opened.items():
                if len(found) >= surplus and now - opened < self.open_s:
                    break
                found.append(turn)
            for turn in found:
                del self._opened[turn]
        return found

    def take_all(self) -> list[Closable]:
        """Remove and return all."""
        with self._lock:
            found, self._opened = list(self._opened), {}
        return found
