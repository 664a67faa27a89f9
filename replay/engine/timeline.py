"""Counts predictions over event time, finely enough to split a history at a share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from learners.outcome import Outcome

MOST: Final = 1 << 16
"""Most time spans of one unit; then each two are merged. Until then every time has its own."""


class Timeline:
    """Spans of event time (Unix ms, the latest so far) with the number of predictions in each.

    A split is before the first outcome at or after its time, so an outcome counts at the latest
    time seen in its unit.
    """

    def __init__(self, most: int = MOST) -> None:
        self.at: list[int] = []
        self.counts: list[int] = []
        self._most, self._clock = most, 0
        self._size = 1
        """Least predictions of a span, so that old and new spans are equally fine."""

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
        """Merge each two spans."""
        counts = self.counts
        self.at[:] = self.at[::2]
        counts[:] = [sum(counts[n : n + 2]) for n in range(0, len(counts), 2)]
        self._size *= 2


def nearest(
    timelines: Sequence[tuple[Sequence[int], Sequence[int]]], wanted: float
) -> tuple[int | None, int]:
    """Return the time (Unix ms) before which the number of predictions is nearest to `wanted`.

    With that number. Both parts have one at least; None where no time splits them so.
    """
    places = _before(timelines)
    return min(places, key=lambda place: abs(place[1] - wanted), default=(None, 0))


def _before(
    timelines: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Iterator[tuple[int, int]]:
    """Yield each time that splits the predictions in two, with the number before it."""
    by_time: dict[int, int] = {}
    for times, counts in timelines:
        for at, count in zip(times, counts, strict=True):
            by_time[at] = by_time.get(at, 0) + count
    total, seen = sum(by_time.values()), 0
    for at in sorted(by_time):
        if 0 < seen < total:
            yield at, seen
        seen += by_time[at]
