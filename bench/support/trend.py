"""Whether something grows: the slope of a line through samples, and how uncertain it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, sqrt
from statistics import fmean
from typing import Final, NamedTuple

BLOCKS: Final = 10
_STUDENT: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)
"""Two-sided 95 % quantiles of Student's t, for 1 to 8 degrees of freedom."""


class Trend(NamedTuple):
    """Units of y per unit of x."""

    slope: float
    error: float
    """Half the width of its 95 % interval; infinite where there are too few samples."""

    def verdict(self, limit: float) -> str:
        """Return `flat`, `grows` or `undecided`: how the interval compares to growth by `limit`.

        Flat must be shown: an unknown slope is undecided.
        """
        if self.slope + self.error <= limit:
            return "flat"
        return "grows" if self.slope - self.error > 0 else "undecided"


def trend(samples: Sequence[tuple[float, float]]) -> Trend:
    """Return the least-squares slope of (x, y) samples in order of x.

    It is fitted to the means of up to ten blocks: neighbouring samples of a process's memory are
    alike, and taken one by one they would pretend to know the slope much better than they do.
    """
    points = _blocks(samples)
    if len(points) < 3:
        return Trend(0.0, inf)
    middle_x, middle_y = fmean(x for x, _y in points), fmean(y for _x, y in points)
    width = sum((x - middle_x) ** 2 for x, _y in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / width
    left = sum((y - middle_y - slope * (x - middle_x)) ** 2 for x, y in points)
    freedom = len(points) - 2
    return Trend(slope, _STUDENT[freedom - 1] * sqrt(left / freedom / width))


def _blocks(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    count = min(BLOCKS, len(samples))
    edges = [len(samples) * number // count for number in range(count + 1)] if count else []
    return [
        (fmean(x for x, _y in block), fmean(y for _x, y in block))
        for begin, end in pairwise(edges)
        if (block := samples[begin:end])
    ]
