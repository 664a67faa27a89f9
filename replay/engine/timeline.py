"""How many predictions were judged by when, finely enough to part a history at a share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from learners.outcome import Outcome

MOST: Final = 1 << 16
"""Stretches of one unit before each two become one; until then every time stands for itself."""


class Timeline:
    """Stretches of event time (Unix ms, the latest so far) and how many predictions are in each.

    A part ends before the first outcome at or after its time, so an outcome counts at the latest
    time that its unit has seen.
    """

    def __init__(self, most: int = MOST) -> None:
        self.at: list[int] = []
        self.counts: list[int] = []
        self._most, self._clock = most, 0
        self._size = 1
        """Predictions from which on a stretch may end: else only the latest ones were exact."""

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add judged outcomes in their order; those that could not be started do not count."""
        at, counts = self.at, self.counts
        for outcome in outcomes:
            later = outcome.timestamp > self._clock
            if not at or (later and counts[-1] >= self._size):
                if len(at) >= self._most:
                    self._halve()
                at.append(outcome.timestamp)
                counts.append(0)
            if later:
                self._clock = outcome.timestamp
            counts[-1] += not outcome.not_startable

    def _halve(self) -> None:
        """Make each two stretches one."""
        counts = self.counts
        self.at[:] = self.at[::2]
        counts[:] = [sum(counts[n : n + 2]) for n in range(0, len(counts), 2)]
        self._size *= 2


def nearest(
    timelines: Sequence[tuple[Sequence[int], Sequence[int]]], wanted: float
) -> tuple[int | None, int]:
    """Return the time (Unix ms) before which the number of predictions is nearest to `wanted`.

    With that number. There is one before it and one from it on; None where no time parts them.
    """
    places = _before(timelines)
    return min(places, key=lambda place: abs(place[1] - wanted), default=(None, 0))


def _before(
    timelines: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Iterator[tuple[int, int]]:
    """Yield each time that parts the predictions, with how many are before it."""
    by_time: dict[int, int] = {}
    for times, counts in timelines:
        for at, count in zip(times, counts, strict=True):
            by_time[at] = by_time.get(at, 0) + count
    total, seen = sum(by_time.values()), 0
    for at in sorted(by_time):
        if 0 < seen < total:
            yield at, seen
        seen += by_time[at]
