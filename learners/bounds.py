"""What the numbers of a state may be: a state from outside is compared with it before it is used.

A forged or damaged state may be of the right length and finite, and still end whoever computes
with it: by the root of a negative variance, or by a division by 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from learners.bit_window import LARGEST


class Bound(NamedTuple):
    """The least and the most that one number of a state may be."""

    name: str
    low: float
    high: float


MANY: Final = 1e15
"""More outcomes than any context sees; 1 more is still another float."""
_ROUNDING: Final = 1e-9

THRESHOLD: Final = Bound("threshold", 0.0, 1.0)
SHARE: Final = Bound("share", 0.0, 1.0 + _ROUNDING)
COUNT: Final = Bound("count", 0.0, MANY)
SUM: Final = Bound("sum", -MANY, MANY)
BITS: Final = Bound("window", 0.0, 2.0**LARGEST - 1.0)
STAKES: Final = Bound("gain", 0.0, inf), Bound("cost", 0.0, inf)
"""Of moving averages, ms: the contract knows no largest gain or cost."""


def outside(values: Sequence[float], bounds: Sequence[Bound]) -> str | None:
    """Return which of `values` is out of its bound, and how; None where none is."""
    for value, (name, low, high) in zip(values, bounds, strict=True):
        if not low <= value <= high:
            return f"{name} is {value:g}, which must be {low:g} to {high:g}"
    return None
