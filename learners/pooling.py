"""Empirical Bayes: derives a prior for a new context from known contexts of the same kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Final

Known = Sequence[float]
"""A deviation of (slope, intercept), then slope variance, covariance, intercept variance."""
_PASSES: Final = 3
_SHARED: Final = 0.5
"""Initial share of the prior's variance that is common to contexts of one kind."""
_FIRST_GUESS_COUNT: Final = 2.0
"""Weight of the initial guess, in contexts."""
_LEAST: Final = 0.05
"""Least variance between contexts, as a share of the prior's variance."""
_LARGEST: Final = 709.0
"""`exp` overflows slightly above."""


def pooled_calibration(
    known: Sequence[Known], precision: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """Return mean and covariance of the deviation of a new context.

    A normal hierarchy (Lindley & Smith 1972): deviations vary about a common mean with variance T
    between contexts, and each is known up to its covariance P. The mean weights each by
    (P + T)^-1, and shrinks to 0; T is estimated by a few steps of EM, bounded by a twentieth and
    the whole of the prior's variance. `precision`: the prior's, of slope and intercept. Returns the
    mean, and its covariance plus T.
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
    """Return the geometric mean of the values above 0; 0 if there are none."""
    logs = [log(value) for value in values if value > 0.0]
    return exp(min(sum(logs) / len(logs), _LARGEST)) if logs else 0.0
