"""Logarithms and exponentials from tables, so that every machine computes the same to the bit.

The C library's `log` and `exp` differ in the last bit from one system to another. The tables are
rounded to 2^-20, far coarser than that; tests/client/prediction shows that no entry is close
enough to a rounding boundary to differ. Everything else that changes a model uses +, -, *, / only,
which IEEE 754 defines exactly, and no `sum()` of floats, which changed in Python 3.12.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

GRID: Final = 1 << 20
ONE: Final = 16_384
"""A probability p has its logarithm at index int(p * ONE)."""


def on_grid(value: float) -> float:
    """Round to a multiple of 2^-20."""
    return round(value * GRID) / GRID


LN: Final = [on_grid(log(max(i, 0.5) / ONE)) for i in range(ONE + 8)]
"""Natural logarithm of i / ONE; of half a step for 0. A few entries more, for sums above 1."""

STEPS: Final = 512
LOWEST: Final = 16
EXP: Final = [on_grid(exp(-i / STEPS)) for i in range(LOWEST * STEPS)] + [2.0**-20]
"""exp(-i / STEPS); the last entry stands for everything below -LOWEST."""

PARTS: Final = 1_024
LOGIT: Final = [on_grid(log((i / PARTS + 0.005) / (1.005 - i / PARTS))) for i in range(PARTS + 1)]
"""Log-odds of i / PARTS, smoothed by .005 at both ends."""


def exp_of_negative(distance: float) -> float:
    """Return exp(-distance) for a distance of 0 or more."""
    return EXP[int(distance * STEPS)] if distance < LOWEST else EXP[-1]


def softmax(scores: list[float], share: float = 1.0) -> list[float]:
    """Return probabilities proportional to exp(score), which add up to `share`."""
    highest = max(scores)
    powers = [EXP[int(d * STEPS)] if (d := highest - x) < LOWEST else EXP[-1] for x in scores]
    total = 0.0
    for power in powers:
        total += power
    factor = share / total
    return [power * factor for power in powers]
