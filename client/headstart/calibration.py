"""From a calibration, a gain and a cost to the threshold: for learners and readers alike.

A learner knows how a confidence p and the truth hang together: a right guess has probability
sigma(slope x + intercept), x = logit(p) (Platt scaling), with an uncertainty. What a level of the
context path knows is a *deviation* from the level above; those of a path add up. Not here: how
deviations are learned, and where they are read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import Final, NamedTuple

TARGET: Final = 0.85
"""Probability that is asked for where neither gain nor cost is known (source 000)."""
MARGIN_MAX: Final = 0.75
"""Most standard deviations of the calibration that a guess must be on the safe side; fewer where a
miss costs little more than a hit gains: there, being timid costs as much as being wrong."""
FAMILIAR: Final = 2.0
"""Outcomes after which a context counts as half known."""
LOGIT_MAX: Final = 5.3
"""Confidences are told apart within sigma(-5.3) to sigma(5.3): .005 to .995."""
_SLOPE_MIN: Final = 0.05
_AIMED: Final = log(TARGET / (1.0 - TARGET))


class LevelDeviation(NamedTuple):
    """What one level of a context path knows beyond the level above it.

    Slope and intercept with their (co)variances; `cold` is what a context not yet known adds to
    the intercept, learned at the coarsest level (0 elsewhere); `outcomes` the level learned from.
    """

    slope: float
    intercept: float
    slope_variance: float
    covariance: float
    intercept_variance: float
    cold: float = 0.0
    cold_variance: float = 0.0
    outcomes: float = 0.0


class Calibration(NamedTuple):
    """Probability of being right: sigma(slope x + intercept), x the logit of the confidence."""

    slope: float
    intercept: float
    slope_variance: float = 0.0
    covariance: float = 0.0
    intercept_variance: float = 0.0


def coldness(outcomes: float) -> float:
    """Return how unknown a context is after so many outcomes: 1 at first, then towards 0."""
    return 1.0 / (1.0 + outcomes / FAMILIAR)


def combined(deviations: Sequence[LevelDeviation], *, unseen: bool = False) -> Calibration:
    """Return the calibration of a context from its path's deviations, coarse to fine.

    `unseen`: the context that was asked for is a finer one, of which nothing is known yet.
    """
    h = 1.0 if unseen or not deviations else coldness(deviations[-1].outcomes)
    return Calibration(
        1.0 + sum(each.slope for each in deviations),
        sum(each.intercept + h * each.cold for each in deviations),
        sum(each.slope_variance for each in deviations),
        sum(each.covariance for each in deviations),
        sum(each.intercept_variance + h * h * each.cold_variance for each in deviations),
    )


def probability(calibration: Calibration, confidence: float) -> float:
    """Return the probability that a guess of this confidence is right."""
    z = calibration.slope * logit(confidence) + calibration.intercept
    return 1.0 / (1.0 + exp(-max(-700.0, z)))


def threshold(calibration: Calibration, gain: float, cost: float) -> float:
    """Return the least confidence worth starting, for a gain and a cost in the same unit.

    With both 0 (not known), `TARGET` is asked for. Raises `ValueError` where one is negative.
    """
    return solve(*calibration, wanted(gain, cost))


def wanted(gain: float, cost: float) -> float:
    """Return `break_even`. Raises `ValueError` where gain or cost is negative, or no number."""
    if not (gain >= 0.0 and cost >= 0.0):
        raise ValueError(f"gain and cost must be numbers of at least 0, not {gain!r} and {cost!r}")
    return break_even(gain, cost)


def break_even(gain: float, cost: float) -> float:
    """Return the logit of the probability at which gain and cost balance: log(cost / gain).

    Of 0 and 0, which are not known, that of `TARGET`.
    """
    if gain > 0.0 and cost > 0.0:
        return log(cost) - log(gain)  # the quotient of tiny numbers may be 0
    if gain > 0.0:
        return -700.0
    return 700.0 if cost > 0.0 else _AIMED


def solve(a: float, b: float, va: float, cab: float, vb: float, z: float) -> float:
    """Return the confidence whose calibrated logit, a margin below, is `z`.

    a x + b - m sd(x) = z, sd² = va x² + 2 cab x + vb, by fixed-point steps; m = min(z²,
    `MARGIN_MAX`) where z is above 0, else 0. 1 where no confidence is enough, 0 where any is.
    """
    if a < _SLOPE_MIN:
        a = _SLOPE_MIN
    b -= z
    x = -b / a
    if z > 0.0:
        margin = z * z if z * z < MARGIN_MAX else MARGIN_MAX
        for _ in range(3):
            if x > LOGIT_MAX:
                x = LOGIT_MAX
            elif x < -LOGIT_MAX:
                x = -LOGIT_MAX
            spread = (va * x + 2.0 * cab) * x + vb
            if spread < 0.0:  # by rounding, or of a deviation that no learner wrote
                spread = 0.0
            x = (margin * sqrt(spread) - b) / a
    if x >= LOGIT_MAX:
        return 1.0
    return 1.0 / (1.0 + exp(-x)) if x > -LOGIT_MAX else 0.0


def logit(confidence: float) -> float:
    """Return log(p / (1 - p)), p held within .005 and .995."""
    if confidence > 0.995:
        confidence = 0.995
    elif confidence < 0.005:
        confidence = 0.005
    return log(confidence / (1.0 - confidence))
