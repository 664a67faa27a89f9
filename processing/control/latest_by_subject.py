"""What a partition has followed of control records of one kind, by subject, and its rows."""

from __future__ import annotations

from typing import Generic, TypeVar

from processing.state.chunking import ROW_EXTRA
from processing.state.rows import control_row

T = TypeVar("T")


class LatestBySubject(Generic[T]):
    """What holds, by row key. All in memory: few."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._held: dict[bytes, T] = {}
        self._touched: dict[bytes, bytes] = {}
        self.touched_bytes = 0

    def _hold(self, key: bytes, what: T, body: bytes, offset: int) -> None:
        """Have something hold from now on. `body`: what its row says of it."""
        self._held[key] = what
        self._touch(key, control_row(body, self._epoch, offset))

    def _touch(self, key: bytes, row: bytes) -> None:
        self._touched[key] = row
        self.touched_bytes += len(key) + len(row) + ROW_EXTRA

    def drain(self) -> list[tuple[bytes, bytes]]:
        """Return the rows that changed since the last call."""
        rows = list(self._touched.items())
        self._touched.clear()
        self.touched_bytes = 0
        return rows
