"""What contexts of one kind have in common: a prior for one more of them (empirical Bayes).

Of calibrations and of typical values; each policy says what it does with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Final

Known = Sequence[float]
"""A deviation of (slope, intercept), then its covariance: (slope, both, intercept)."""
_PASSES: Final = 3
_SHARED: Final = 0.5
"""Share of the prior's variance that contexts of one kind are held to have in common at first."""
_FIRST_GUESS_COUNT: Final = 2.0
"""As how many contexts that first guess counts."""
_LEAST: Final = 0.05
"""Of the prior's variance, what one more context may differ at the least."""
_LARGEST: Final = 709.0
"""`exp` of little more overflows."""


def pooled_calibration(
    known: Sequence[Known], precision: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """Return mean and covariance of what one more context's deviation will be.

    A normal hierarchy (Lindley & Smith 1972): each deviation is drawn about a common mean, by a
    variance T between contexts, and is known as well as its covariance P says. The mean weighs
    each by (P + T)^-1, and shrinks to 0; T is estimated by a few steps of EM from what is seen of
    it, between a twentieth and the whole of the prior's. `precision`: the prior's, of slope and
    intercept. The result is the mean, and its covariance plus T.
    """
    prior = 1.0 / precision[0], 1.0 / precision[1]
    common = prior[0] * _SHARED, prior[1] * _SHARED
    t1, t3 = prior[0] - common[0], prior[1] - common[1]
    first = t1, t3
    for step in range(_PASSES):
        (a, b), (v1, v2, v3) = _mean(known, common, t1, t3)
        if step == _PASSES - 1:
            break
        t1 = _between([(each[0], each[2]) for each in known], a, first[0], prior[0])
        t3 = _between([(each[1], each[4]) for each in known], b, first[1], prior[1])
    return (a, b), (v1 + t1, v2, v3 + t3)


def _mean(
    known: Sequence[Known], common: tuple[float, float], t1: float, t3: float
) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """Return the common mean and its covariance, given the variance between contexts."""
    w1, w2, w3 = 1.0 / common[0], 0.0, 1.0 / common[1]
    e1 = e2 = 0.0
    for da, db, own1, p2, own3 in known:
        p1, p3 = own1 + t1, own3 + t3
        scale = 1.0 / (p1 * p3 - p2 * p2)
        w1, w2, w3 = w1 + p3 * scale, w2 - p2 * scale, w3 + p1 * scale
        e1 += (p3 * da - p2 * db) * scale
        e2 += (p1 * db - p2 * da) * scale
    scale = 1.0 / (w1 * w3 - w2 * w2)
    v1, v2, v3 = w3 * scale, -w2 * scale, w1 * scale
    return (v1 * e1 + v2 * e2, v2 * e1 + v3 * e2), (v1, v2, v3)


def _between(known: Sequence[tuple[float, float]], mean: float, first: float, most: float) -> float:
    """Return the variance between contexts from (deviation, its variance) of each."""
    seen = sum((each - mean) ** 2 + variance for each, variance in known)
    found = (_FIRST_GUESS_COUNT * first + seen) / (_FIRST_GUESS_COUNT + len(known))
    return min(max(found, _LEAST * most), most)


def typical(values: Iterable[float]) -> float:
    """Return the geometric mean of those above 0; 0 where none is."""
    logs = [log(value) for value in values if value > 0.0]
    return exp(min(sum(logs) / len(logs), _LARGEST)) if logs else 0.0
