"""What several looks say together: rates, how thresholds moved, since when nothing did. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from console.inspection.learned import KEPT
from console.inspection.snapshot import SystemSnapshot

_RATE_S: Final = 10.0
"""Over how many seconds a rate is taken."""


@dataclass
class Trends:
    """Takes looks in the order of time; keeps what a view needs of them."""

    look: SystemSnapshot | None = None
    moved: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    """Thresholds by (tenant, path), oldest first: one value for each time it was other."""
    progressed: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each worker (name, instance) was last seen further than before, Unix seconds."""
    _done: dict[tuple[str, str], int] = field(default_factory=dict)
    _counts: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)
    _still_since: float | None = None
    _reached: int = -1

    def add(self, look: SystemSnapshot) -> None:
        """Take the newest look."""
        self.look = look
        for key, values in look.moves.items():
            self.moved.setdefault(key, deque(values, maxlen=KEPT))
        for context in look.learned.leading if look.learned else ():
            course = self.moved.setdefault((context.tenant, context.path), deque(maxlen=KEPT))
            if not course or course[-1] != context.speculate:
                course.append(context.speculate)
        for worker in look.workers:
            key = (worker.name, worker.instance)
            if worker.done > self._done.setdefault(key, worker.done):
                self._done[key] = worker.done
                self.progressed[key] = look.at
        self._count(look)
        self._stand(look)

    def _count(self, look: SystemSnapshot) -> None:
        counts: dict[str, int] = {}
        if look.log is not None:
            counts["records"] = look.log.records
        if look.stored is not None:
            counts["events"] = look.stored.events
        self._counts.append((look.at, counts))
        while len(self._counts) > 2 and look.at - self._counts[1][0] >= _RATE_S:
            self._counts.popleft()

    def rate(self, name: str) -> float | None:
        """Return by how much a count grew per second of late; None where that is not known."""
        (began, first), (ended, last) = self._counts[0], self._counts[-1]
        if ended <= began or name not in first or name not in last:
            return None
        return max(0.0, (last[name] - first[name]) / (ended - began))

    def _stand(self, look: SystemSnapshot) -> None:
        reached = 0
        if look.log is not None:
            reached = sum(look.log.learned.values())
            for offsets in look.stored.offsets.values() if look.stored else ():
                reached += sum(offsets.values())
        if not look.lag or reached != self._reached:
            self._still_since = look.at
        self._reached = reached

    @property
    def still_s(self) -> float:
        """Seconds for which records have waited, and no group came further."""
        if self.look is None or self._still_since is None:
            return 0.0
        return self.look.at - self._still_since
