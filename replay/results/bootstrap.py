"""Intervals by bootstrap over workflows: what the same policies might have earned on another day.

Workflows are drawn with replacement, whole, because predictions of one workflow hang together
(Efron & Tibshirani 1993, ch. 8). Those whose ids hash alike are drawn together, so that memory
does not grow with their number. Pure: the draws follow from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

ROUNDS: Final = 1_000
LEVEL: Final = 0.95
FEWEST: Final = 8
"""Groups below which the spread is unknown."""
_SEED: Final = 20_250


class Interval(NamedTuple):
    """A value and where it lies, 95 times of 100; None where there are too few workflows."""

    value: float
    low: float | None
    high: float | None


class Bootstrap:
    """The draws over groups, the same for every arm, so that differences are paired.

    `members`: how many predictions each group has; empty groups are never drawn.
    """

    def __init__(self, members: Sequence[int], rounds: int = ROUNDS) -> None:
        self._there = [place for place, count in enumerate(members) if count]
        draw, count = Random(_SEED), len(self._there)
        self._rounds = (
            [draw.choices(self._there, k=count) for _ in range(rounds)] if count >= FEWEST else []
        )
        self._sums: dict[str, list[float]] = {}

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self._there)

    def add(self, arms: Mapping[str, Sequence[float]]) -> None:
        """Draw for arms, each given by its sum in each group."""
        for name, groups in arms.items():
            of = groups.__getitem__
            self._sums[name] = [sum(map(of, drawn)) for drawn in self._rounds]

    def of(self, name: str, value: float) -> Interval:
        """Return the interval of an arm's sum."""
        return _interval(value, self._sums[name])

    def difference(self, name: str, against: str, value: float) -> Interval:
        """Return the interval of one arm's sum minus another's."""
        pairs = zip(self._sums[name], self._sums[against], strict=True)
        return _interval(value, [one - other for one, other in pairs])


def _interval(value: float, drawn: Sequence[float]) -> Interval:
    if not drawn:
        return Interval(value, None, None)
    ordered = sorted(drawn)
    tail = (1.0 - LEVEL) / 2.0
    last = len(ordered) - 1
    return Interval(value, ordered[round(tail * last)], ordered[round((1.0 - tail) * last)])
