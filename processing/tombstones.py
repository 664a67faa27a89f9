"""Which deleted rows may be buried: those whose marker is older than any late writer.

Says nothing about what is learned; only space is won, so a wall clock will do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from processing.rows import is_deleted

BURY_AFTER_S: Final = 1_800.0
"""How long a marker stays: well beyond the session of a worker that was stopped and woke up."""
MAX_AT_ONCE: Final = 10_000


class Tombstones:
    """The markers of one partition, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, bytes, bytes]] = deque()

    def add(self, rows: Iterable[tuple[bytes, bytes]], now_s: float) -> None:
        """Note the markers among rows that were written at `now_s` (any steady clock)."""
        for key, row in rows:
            if is_deleted(row):
                self._waiting.append((now_s, key, row))

    def due(self, now_s: float) -> list[tuple[bytes, bytes]]:
        """Return (key, marker) of those that are old enough by now, and forget them."""
        found: list[tuple[bytes, bytes]] = []
        while self._waiting and len(found) < MAX_AT_ONCE:
            noted, key, row = self._waiting[0]
            if noted > now_s - BURY_AFTER_S:
                break
            self._waiting.popleft()
            found.append((key, row))
        return found
