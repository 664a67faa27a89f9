"""Computes when a deleted row may get a tombstone: once no late writer can be left.

Until then a row that holds only a version marks the deletion. Tombstones only save space and do not
affect what is learned, so the wall clock is good enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from processing.state.rows import START, is_deleted

MARKER_RETENTION_S: Final = 1_800.0
"""How long a marker stays: much longer than the session of a worker that was suspended."""
START_MARKER_RETENTION_S: Final = 300.0
"""The same for a start. There are as many as predictions, and none is published: it is enough that
no request is in flight for so long."""
MAX_AT_ONCE: Final = 10_000

_Waiting = deque[tuple[float, bytes, bytes]]


class Tombstones:
    """The markers of one partition, oldest first."""

    def __init__(
        self,
        marker_retention_s: float = MARKER_RETENTION_S,
        start_marker_retention_s: float = START_MARKER_RETENTION_S,
    ) -> None:
        self._after_s, self._starts_after_s = marker_retention_s, start_marker_retention_s
        self._starts: _Waiting = deque()
        self._others: _Waiting = deque()

    def add(self, rows: Iterable[tuple[bytes, bytes]], now_s: float) -> None:
        """Note the markers among rows that were written at `now_s` (any steady clock)."""
        for key, row in rows:
            if is_deleted(row):
                waiting = self._starts if key.startswith(START) else self._others
                waiting.append((now_s, key, row))

    def due(self, now_s: float) -> list[tuple[bytes, bytes]]:
        """Remove and return (key, marker) of those that are old enough."""
        found: list[tuple[bytes, bytes]] = []
        _take(self._others, now_s - self._after_s, found)
        _take(self._starts, now_s - self._starts_after_s, found)
        return found


def _take(waiting: _Waiting, until_s: float, found: list[tuple[bytes, bytes]]) -> None:
    while waiting and len(found) < MAX_AT_ONCE and waiting[0][0] <= until_s:
        _noted, key, row = waiting.popleft()
        found.append((key, row))
