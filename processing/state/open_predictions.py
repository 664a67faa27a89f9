"""The open starts of one partition: `speculation_start`s that wait for their completion.

A start without a completion expires after an hour. One that the same record opens and closes never
has a row. That follows from the log; two records might share a commit on one worker and not on
another, so a start that a later record closes always has one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Set
from math import inf
from operator import attrgetter
from typing import Final

from processing.state.chunking import ROW_EXTRA
from processing.state.expiry_budget import ExpiryBudget
from processing.state.rows import (
    OpenPredictionRow,
    decode_start,
    deleted,
    encode_start,
    is_old_start,
    old_start_key,
    start_key,
)

START_LIFE_MS: Final = 3_600_000
"""How long a start waits for its completion, by the partition's clock."""

task_of: Final = attrgetter("tenant", "workflow_type", "workflow_id", "task_id")
"""Returns what identifies the start of an event."""


class OpenPredictions:
    """Open starts by row key, all in memory."""

    def __init__(self, epoch: int, arrived: Callable[[int], int] = int) -> None:
        """`arrived`: see `PartitionClock.arrived`."""
        self._epoch, self._arrived = epoch, arrived
        self._open: dict[bytes, OpenPredictionRow] = {}
        self._expiry: list[tuple[int, bytes]] = []
        self._touched: dict[bytes, bytes] = {}
        self._opened: dict[bytes, tuple[int, bytes | None]] = {}
        """Starts opened since the last commit: offset, and the row then pending for the key."""
        self._old = set[bytes]()
        """Keys written by earlier versions, which lack the workflow type."""
        self.touched_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def keys(self) -> Set[bytes]:
        """Return a live view of the keys of open starts."""
        return self._open.keys()

    def key_of(self, tenant: str, workflow_type: str, workflow_id: str, task_id: str) -> bytes:
        """Return the key of a task's open start, or the key that a new one would have."""
        key = start_key(tenant, workflow_type, workflow_id, task_id)
        if self._old and key not in self._open:
            old = old_start_key(tenant, workflow_id, task_id)
            if old in self._old:
                return old
        return key

    def awaits(
        self, tenant: str, workflow_type: str, workflow_id: str, task_id: str | None
    ) -> bool:
        """Return whether a task has an open start."""
        if task_id is None:
            return False
        return self.key_of(tenant, workflow_type, workflow_id, task_id) in self._open

    def get(self, key: bytes) -> OpenPredictionRow | None:
        """Return an open start; None where there is none."""
        return self._open.get(key)

    def values(self) -> Collection[OpenPredictionRow]:
        """Return the open starts."""
        return self._open.values()

    @property
    def next_expiry(self) -> float:
        """Time (Unix ms) before which none expires."""
        return self._expiry[0][0] + START_LIFE_MS + 1 if self._expiry else inf

    def restore(self, key: bytes, raw: bytes) -> None:
        """Restore one row of the table."""
        self._open[key] = start = decode_start(raw)
        if is_old_start(key):
            self._old.add(key)
        heapq.heappush(self._expiry, (self._arrived(start.timestamp), key))

    def recompute_ages(self) -> None:
        """Judge the age of open starts by clock records from now on."""
        self._expiry = [(self._arrived(start.timestamp), key) for key, start in self._open.items()]
        heapq.heapify(self._expiry)

    def open(self, key: bytes, start: OpenPredictionRow, offset: int) -> bool:
        """Add a start; return whether it replaces one that was still open."""
        replaces = key in self._open
        if not replaces:
            self._opened[key] = offset, self._touched.get(key)
        self._open[key] = start
        heapq.heappush(self._expiry, (self._arrived(start.timestamp), key))
        self._touch(key, encode_start(start, self._epoch, offset))
        return replaces

    def close(self, key: bytes, offset: int) -> OpenPredictionRow | None:
        """Remove and return an open start; None where there is none."""
        start = self._open.pop(key, None)
        if start is None:
            return None
        self._old.discard(key)
        opened, before = self._opened.pop(key, (-1, None))
        if opened != offset:
            self._touch(key, deleted(self._epoch, offset))
        elif before is None:
            del self._touched[key]
        else:
            self._touched[key] = before
        return start

    def expire(self, clock: int, offset: int, budget: ExpiryBudget) -> list[bytes]:
        """Close starts that waited for `START_LIFE_MS`, within the budget; return their keys."""
        oldest, expired = clock - START_LIFE_MS, list[bytes]()
        while budget and self._expiry and self._expiry[0][0] < oldest:
            timestamp, key = heapq.heappop(self._expiry)
            start = self._open.get(key)
            if start is None:
                continue
            if (arrived := self._arrived(start.timestamp)) != timestamp:  # it was replaced
                heapq.heappush(self._expiry, (arrived, key))
                continue
            self.close(key, offset)
            budget.take(len(key))
            expired.append(key)
        return expired

    def _touch(self, key: bytes, row: bytes) -> None:
        self._touched[key] = row
        self.touched_bytes += len(key) + len(row) + ROW_EXTRA

    def drain(self) -> list[tuple[bytes, bytes]]:
        """Return the rows that changed since the last call."""
        rows = list(self._touched.items())
        self._touched.clear()
        self._opened.clear()
        self.touched_bytes = 0
        return rows
