"""Bounds of the numbers in a state, to validate states from outside.

A forged or damaged state may have the right length and be finite, and still raise an error: the
root of a negative variance, or a division by 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from learners.bit_window import LARGEST


class Bound(NamedTuple):
    """The inclusive range of one number in a state."""

    name: str
    low: float
    high: float


MANY: Final = 1e15
"""More outcomes than any context has; floats up to here still count by 1."""
_ROUNDING: Final = 1e-9

THRESHOLD: Final = Bound("threshold", 0.0, 1.0)
SHARE: Final = Bound("share", 0.0, 1.0 + _ROUNDING)
COUNT: Final = Bound("count", 0.0, MANY)
SUM: Final = Bound("sum", -MANY, MANY)
BITS: Final = Bound("window", 0.0, 2.0**LARGEST - 1.0)
STAKES: Final = Bound("gain", 0.0, inf), Bound("cost", 0.0, inf)
"""Moving averages, ms: the contract has no upper limit of gain and cost."""


def outside(values: Sequence[float], bounds: Sequence[Bound]) -> str | None:
    """Return the first of `values` that is out of its bound, as a message; None if none is."""
    for value, (name, low, high) in zip(values, bounds, strict=True):
        if not low <= value <= high:
            return f"{name} is {value:g}, which must be {low:g} to {high:g}"
    return None
