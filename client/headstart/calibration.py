"""Computes the threshold from a calibration, a gain and a cost, for learners and readers.

A calibration maps a confidence p to the probability of being right: sigma(slope x + intercept),
x = logit(p) (Platt scaling), with an uncertainty. A level of the context path has a *deviation*
from the level above; those of a path are summed. Learners learn the deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, sqrt
from typing import Final, NamedTuple

TARGET: Final = 0.85
"""Required probability if neither gain nor cost is known (source 000)."""
MARGIN_MAX: Final = 0.75
"""Largest safety margin, in standard deviations of the calibration. Smaller if a miss costs little
more than a hit gains: then being timid costs as much as being wrong."""
FAMILIAR: Final = 2.0
"""Outcomes after which `coldness` is one half."""
TRUSTED_OUTCOMES: Final = 200
"""Outcomes of a workflow type before which the confidence of a calibrated guess is believed."""
CONSTANT_LEARNERS: Final = frozenset(("fixed", "never", "always"))
"""Learners that learn nothing: what an operator chose holds for calibrated guesses too."""
LOGIT_MAX: Final = 5.3
"""Confidences are clipped to sigma(-5.3) to sigma(5.3): .005 to .995."""
_SLOPE_MIN: Final = 0.05
_AIMED: Final = log(TARGET / (1.0 - TARGET))


class LevelDeviation(NamedTuple):
    """The calibration of one level of a context path, relative to the level above it.

    Slope and intercept with their (co)variances; `cold` is added to the intercept of a
    context not yet known, and learned at the coarsest level (0 elsewhere). `outcomes`: number
    learned from.
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
    """Return how unknown a context is: 1 without outcomes, then decreasing towards 0."""
    return 1.0 / (1.0 + outcomes / FAMILIAR)


def combined(deviations: Sequence[LevelDeviation], *, unseen: bool = False) -> Calibration:
    """Return the calibration of a context from its path's deviations, coarse to fine.

    `unseen`: of a finer context without outcomes.
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

    A cost of 0 is unknown: see `break_even`. Raises `ValueError` if one is negative.
    """
    return solve(*calibration, wanted(gain, cost))


def calibrated_threshold(gain: float, cost: float) -> float:
    """Return cost / (cost + gain), the least confidence worth starting if confidences are honest.

    Gain and cost are at least 0, in the same unit. A cost of 0 is unknown: see `break_even`.
    """
    if cost == 0.0:
        return 0.5 if gain > 0.0 else TARGET
    both = gain + cost
    if both == inf:  # of finite numbers
        gain, cost = 0.5 * gain, 0.5 * cost
        both = gain + cost
    return cost / both


def believes_calibrated(outcomes: int, learner: str) -> bool:
    """Return whether `calibrated_threshold` applies to guesses whose confidence is calibrated.

    `outcomes`: those learned from in the workflow type, in all its contexts; `learner`: the name of
    the policy that its thresholds come from.
    """
    return outcomes < TRUSTED_OUTCOMES and learner not in CONSTANT_LEARNERS


def wanted(gain: float, cost: float) -> float:
    """Return `break_even`. Raises `ValueError` if gain or cost is negative or NaN."""
    if not (gain >= 0.0 and cost >= 0.0):
        raise ValueError(f"gain and cost must be numbers of at least 0, not {gain!r} and {cost!r}")
    return break_even(gain, cost)


def break_even(gain: float, cost: float) -> float:
    """Return the logit of the probability at which gain and cost balance: log(cost / gain).

    If both are 0 (unknown), the logit of `TARGET`. A cost is logged with a wrong guess that was
    started, so until the first one it is 0, which would start every guess: it counts as equal to
    the gain, because a guess can waste about the time that it can save.
    """
    if cost == 0.0:
        return 0.0 if gain > 0.0 else _AIMED
    if gain > 0.0:
        return log(cost) - log(gain)  # the quotient of tiny numbers may be 0
    return 700.0


def solve(a: float, b: float, va: float, cab: float, vb: float, z: float) -> float:
    """Return the confidence whose calibrated logit, a margin below, is `z`.

    a x + b - m sd(x) = z, sd² = va x² + 2 cab x + vb, by fixed-point steps; m = min(z²,
    `MARGIN_MAX`) if z is above 0, else 0. Returns 1 if no confidence suffices, 0 if any does.
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
            if spread < 0.0:  # by rounding, or a deviation that no learner wrote
                spread = 0.0
            x = (margin * sqrt(spread) - b) / a
    if x >= LOGIT_MAX:
        return 1.0
    return 1.0 / (1.0 + exp(-x)) if x > -LOGIT_MAX else 0.0


def logit(confidence: float) -> float:
    """Return log(p / (1 - p)), with p clipped to .005 to .995."""
    if confidence > 0.995:
        confidence = 0.995
    elif confidence < 0.005:
        confidence = 0.005
    return log(confidence / (1.0 - confidence))
