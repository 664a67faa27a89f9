"""Derives rates, threshold histories and stalls from successive snapshots. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from console.inspection.learned import KEPT
from console.inspection.snapshot import SystemSnapshot

_RATE_S: Final = 10.0
"""Window of a rate, in seconds."""


@dataclass
class Trends:
    """Collects snapshots in order of time, for a view."""

    snapshot: SystemSnapshot | None = None
    moved: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    """Thresholds by (tenant, path), oldest first, one for each change."""
    progressed: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each worker (name, instance) last made progress, Unix seconds."""
    _done: dict[tuple[str, str], int] = field(default_factory=dict)
    _counts: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)
    _stalled_since: float | None = None
    _reached: int = -1

    def add(self, snapshot: SystemSnapshot) -> None:
        """Add the newest snapshot."""
        self.snapshot = snapshot
        for key, values in snapshot.moves.items():
            self.moved.setdefault(key, deque(values, maxlen=KEPT))
        for context in snapshot.learned.leading if snapshot.learned else ():
            course = self.moved.setdefault((context.tenant, context.path), deque(maxlen=KEPT))
            if not course or course[-1] != context.speculate:
                course.append(context.speculate)
        for worker in snapshot.workers:
            key = (worker.name, worker.instance)
            if worker.done > self._done.setdefault(key, worker.done):
                self._done[key] = worker.done
                self.progressed[key] = snapshot.at
        self._count(snapshot)
        self._note_progress(snapshot)

    def _count(self, snapshot: SystemSnapshot) -> None:
        counts: dict[str, int] = {}
        if snapshot.log is not None:
            counts["records"] = snapshot.log.records
        if snapshot.stored is not None:
            counts["events"] = snapshot.stored.events
        self._counts.append((snapshot.at, counts))
        while len(self._counts) > 2 and snapshot.at - self._counts[1][0] >= _RATE_S:
            self._counts.popleft()

    def rate(self, name: str) -> float | None:
        """Return a count's recent growth per second, or None if unknown."""
        (began, first), (ended, last) = self._counts[0], self._counts[-1]
        if ended <= began or name not in first or name not in last:
            return None
        return max(0.0, (last[name] - first[name]) / (ended - began))

    def _note_progress(self, snapshot: SystemSnapshot) -> None:
        reached = 0
        if snapshot.log is not None:
            reached = sum(snapshot.log.learned.values())
            for offsets in snapshot.stored.offsets.values() if snapshot.stored else ():
                reached += sum(offsets.values())
        if not snapshot.lag or reached != self._reached:
            self._stalled_since = snapshot.at
        self._reached = reached

    @property
    def still_s(self) -> float:
        """Seconds for which records have waited without progress of any group."""
        if self.snapshot is None or self._stalled_since is None:
            return 0.0
        return self.snapshot.at - self._stalled_since
