"""Bounds the cost that wrong guesses of one process may waste per minute. No clock."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 60.0
"""Seconds over which wasted cost is summed."""


WEIGHT: Final = 0.2
"""Of a tool's latest wrong guess, in the average of what its wrong guesses wasted."""
MOST_TOOLS: Final = 1_000
"""Tools whose average is kept; of a further one nothing is expected."""


class ExpectedWaste:
    """What a wrong guess of a tool is expected to waste: an exponential average. In ms."""

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}

    def of(self, tool: str) -> float:
        """Return the expected waste; 0 for a tool that is not known."""
        return self._averages.get(tool, 0.0)

    def add(self, tool: str, wasted: float) -> None:
        """Add what a wrong guess wasted."""
        average = self._averages.get(tool)
        if average is None:
            if len(self._averages) < MOST_TOOLS:
                self._averages[tool] = wasted
        else:
            self._averages[tool] = average + WEIGHT * (wasted - average)


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
