"""Bounds what wrong guesses may waste: cost per minute, of all guesses of one process. No clock."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 60.0
"""Seconds over which waste is added up."""


class CostBudget:
    """Admits a guess where its cost still fits into what may be wasted within a minute.

    A guess under way counts with the cost it is expected to have, so that many at once cannot pass
    the limit together. Once the limit is reached none is admitted, also of no or unknown cost; so
    a limit of 0 admits none. `limit` and costs are in one unit, such as ms; times in seconds.
    """

    def __init__(self, limit: float) -> None:
        if not limit >= 0.0:
            raise ValueError(f"a limit of wasted cost is at least 0, not {limit!r}")
        self.limit = limit
        self._wasted: deque[tuple[float, float]] = deque()
        self._sum = self._reserved = 0.0

    def fits(self, cost: float, now: float) -> bool:
        """Return whether a guess that may cost so much fits."""
        taken = self.wasted(now) + self._reserved
        return taken < self.limit and taken + cost <= self.limit

    def reserve(self, cost: float, now: float) -> bool:
        """Take that much for a guess that begins now; return False where it does not fit."""
        if not self.fits(cost, now):
            return False
        self._reserved += cost
        return True

    def settle(self, reserved: float, wasted: float, now: float) -> None:
        """Give back what a guess had reserved; count what it wasted, 0 for a hit."""
        self._reserved = max(0.0, self._reserved - reserved)
        if wasted > 0.0:
            self._wasted.append((now, wasted))
            self._sum += wasted

    def wasted(self, now: float) -> float:
        """Return what was wasted within the last minute."""
        while self._wasted and self._wasted[0][0] <= now - WINDOW_S:
            self._sum -= self._wasted.popleft()[1]
        if not self._wasted:
            self._sum = 0.0  # no rounding error outlives its minute
        return self._sum
