"""Control records of one kind that a partition applied: the latest of each subject."""

from __future__ import annotations

from typing import Generic, TypeVar

from processing.state.chunking import ROW_EXTRA
from processing.state.rows import control_row

T = TypeVar("T")


class LatestBySubject(Generic[T]):
    """The latest record of each subject by row key. All in memory, because they are few."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._latest: dict[bytes, T] = {}
        self._touched: dict[bytes, bytes] = {}
        self.touched_bytes = 0

    def _set(self, key: bytes, record: T, body: bytes, offset: int) -> None:
        """Store the latest record of a subject. `body`: its row without the version."""
        self._latest[key] = record
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
