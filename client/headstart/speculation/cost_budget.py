"""Bounds the cost that wrong guesses of one process may waste per minute. No clock."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 60.0
"""Seconds over which wasted cost is summed."""


class CostBudget:
    """Admits a guess if its cost fits into the budget of the last minute.

    A running guess reserves its expected cost, so that concurrent ones cannot exceed the limit
    together. Once the limit is reached, guesses of no or unknown cost are refused too; so a limit
    of 0 admits none. `limit` and costs are in one unit, such as ms; times in seconds.
    """

    def __init__(self, limit: float) -> None:
        if not limit >= 0.0:
            raise ValueError(f"the limit of wasted cost must be at least 0, not {limit!r}")
        self.limit = limit
        self._wasted: deque[tuple[float, float]] = deque()
        self._sum = self._reserved = 0.0

    def fits(self, cost: float, now: float) -> bool:
        """Return whether a guess of this cost is admitted."""
        taken = self.wasted(now) + self._reserved
        return taken < self.limit and taken + cost <= self.limit

    def reserve(self, cost: float, now: float) -> bool:
        """Reserve the cost of a guess that starts now; return False if it does not fit."""
        if not self.fits(cost, now):
            return False
        self._reserved += cost
        return True

    def settle(self, reserved: float, wasted: float, now: float) -> None:
        """Release a reservation, and count the cost that was wasted (0 for a hit)."""
        self._reserved = max(0.0, self._reserved - reserved)
        if wasted > 0.0:
            self._wasted.append((now, wasted))
            self._sum += wasted

    def wasted(self, now: float) -> float:
        """Return the cost wasted within the last minute."""
        while self._wasted and self._wasted[0][0] <= now - WINDOW_S:
            self._sum -= self._wasted.popleft()[1]
        if not self._wasted:
            self._sum = 0.0  # discards rounding errors
        return self._sum
