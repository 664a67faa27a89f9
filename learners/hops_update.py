"""What HOPS does with one level's evidence: to take in an outcome, to forget, to doubt, to answer.

Its constants are here, too. Functions of numbers and tuples alone, so that Numba compiles them as
they stand (`kernels.learning`). Not here: the same over a history, for backtests (`hops_walk`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, sqrt
from typing import Final

from headstart.calibration import FAMILIAR, LOGIT_MAX, break_even, logit, solve
from learners.policy import SUGGEST_TARGET, State, clamp, moving_average

Above = tuple[float, float, float, float, float]
"""What the levels above one add up to: slope, intercept, and their covariance."""
OutcomeFeatures = tuple[float, float, float, float]
"""Of an outcome the confidence as it is `features`, 1 where it was right, else 0, gain and cost."""
Cold = tuple[float, float]
"""What a context adds to the intercept by being new, and the variance of that."""
Kept = tuple[float, float, float]
Fading = tuple[Kept, Kept, Kept, Kept]

PRIORS: Final = ((24.0, 6.0), (240.0, 18.0), (240.0, 48.0), (240.0, 32.0))
"""Prior precision of (slope, intercept) deviations by depth; deeper levels take the last."""
COLD_PRIOR: Final = 0.5
"""Prior precision of what a context not yet known adds to the intercept."""
FAR_BELOW: Final = 0.7
FAR_ABOVE: Final = 3.0
"""How far on the other side of even odds than the break-even point an outcome counts at most, as a
product of logits: else a miss at .02 would make the line steeper, and so .9 more credible."""
NOISE: Final = 4.0
"""1 over the largest weight that one outcome can have, q (1 - q) <= 1/4 (Böhning 1992)."""
_INTERCEPT_KEPT: Final = 0.1
"""Share of what was known of the intercept that an alarm leaves."""
EVERY: Final = 8.0
"""Outcomes between two times of forgetting, all of them at once: one matrix inversion for eight."""
SLOPE_MIN: Final = 0.05
SURE: Final = 12.0
_WORTH_SHOWING: Final = break_even(1.0 - SUGGEST_TARGET, SUGGEST_TARGET)
TOP: Final[Above] = (1.0, 0.0, 0.0, 0.0, 0.0)
"""`Above` of the coarsest level."""


def features(confidence: float, gain: float, cost: float) -> float:
    """Return the logit of a confidence as it counts for HOPS."""
    x, even = logit(confidence), break_even(gain, cost)
    far = FAR_BELOW if x < 0.0 else FAR_ABOVE
    return -far / clamp(even, -LOGIT_MAX, LOGIT_MAX) if x * even < -far else x


@dataclass(frozen=True)
class Steps:
    """The parameters of HOPS (`Hops`), and what follows from them."""

    keep: float = 0.9995
    slack: float = 0.055
    alarm: float = 13.0
    stakes: float = 0.05
    slope_kept: float = 1.0

    @cached_property
    def fading(self) -> Fading:
        """By depth: what is kept of the evidence, and what the prior adds to L of a and of b."""
        keep = self.keep**EVERY
        of = [(keep, (1.0 - keep) * a, (1.0 - keep) * b) for a, b in PRIORS]
        return of[0], of[1], of[2], of[3]


def decay(
    steps: Steps, depth: float, da: float, db: float, p1: float, p2: float, p3: float
) -> tuple[float, float, float, float, float]:
    """Return d and P with `EVERY` outcomes' worth of evidence faded towards the prior."""
    keep, fresh_a, fresh_b = steps.fading[int(depth) if depth < 4.0 else 3]
    scale = keep / (p1 * p3 - p2 * p2)
    l1, l2, l3 = p3 * scale, -p2 * scale, p1 * scale
    e1, e2 = l1 * da + l2 * db, l2 * da + l3 * db
    l1 += fresh_a
    l3 += fresh_b
    scale = 1.0 / (l1 * l3 - l2 * l2)
    p1, p2, p3 = l3 * scale, -l2 * scale, l1 * scale
    return p1 * e1 + p2 * e2, p2 * e1 + p3 * e2, p1, p2, p3


def inflate_after_drift(
    steps: Steps, depth: float, p1: float, p2: float, p3: float
) -> tuple[float, float, float]:
    """Return P after an alarm: of the intercept hardly more is known than at first."""
    prior = PRIORS[int(depth) if depth < 4.0 else 3]
    if steps.slope_kept < 1.0:
        p1, p2 = p1 / steps.slope_kept, p2 / sqrt(steps.slope_kept)
        gained = (1.0 - steps.slope_kept) * prior[0]
        shrink = gained / (1.0 + gained * p1)
        p1, p2, p3 = p1 - shrink * p1 * p1, p2 - shrink * p1 * p2, p3 - shrink * p2 * p2
    p2, p3 = p2 / sqrt(_INTERCEPT_KEPT), p3 / _INTERCEPT_KEPT
    gained = (1.0 - _INTERCEPT_KEPT) * prior[1]
    shrink = gained / (1.0 + gained * p3)
    return p1 - shrink * p2 * p2, p2 - shrink * p2 * p3, p3 - shrink * p3 * p3


def update_cold_offset(
    steps: Steps, cold: float, variance: float, h: float, error: float
) -> tuple[float, float]:
    """Return `cold` and its variance after an outcome in a context known as little as `h`."""
    kept = steps.keep / variance
    precision = kept + (1.0 - steps.keep) * COLD_PRIOR
    faded = kept * cold / precision
    precision += h * h / NOISE
    return faded + h * error / precision, 1.0 / precision


def update_level(
    steps: Steps,
    own: State,
    above: Above,
    outcome: OutcomeFeatures,
    h: float,
    cold: Cold,
    doubtful: bool,
) -> tuple[State, bool]:
    """Return a level's state after an outcome, and whether finer ones are to doubt what they know.

    `own`: before; `above`, `cold` and `doubtful`: as the level above left them, or as the coarsest
    one begins; `h`: how little the finest level was known.
    """
    depth, n, g, c, da, db, p1, p2, p3, up, down, _, _, _, _, _, _, _ = own
    a, b, va, cab, vb = above
    x, y, gain, cost = outcome
    if n % EVERY == 0.0 and n > 0.0:
        da, db, p1, p2, p3 = decay(steps, depth, da, db, p1, p2, p3)
    if doubtful:
        p1, p2, p3 = inflate_after_drift(steps, depth, p1, p2, p3)
    slope = a + da
    z = (slope if slope > SLOPE_MIN else SLOPE_MIN) * x + b + db + h * cold[0]
    error = y - 1.0 / (1.0 + exp(-z if z > -SURE else SURE))
    v1, v2 = p1 * x + p2, p2 * x + p3
    shrink = 1.0 / (NOISE + v1 * x + v2)
    step, ratio = NOISE * error * shrink, v1 * shrink
    da += v1 * step
    db += v2 * step
    p1, p2, p3 = p1 - v1 * ratio, p2 - v2 * ratio, p3 - v2 * v2 * shrink
    up += error - steps.slack
    if up < 0.0:
        up = 0.0
    down -= error + steps.slack
    if down < 0.0:
        down = 0.0
    if up > steps.alarm or down > steps.alarm:
        up, down, doubtful = 0.0, 0.0, True
        p1, p2, p3 = inflate_after_drift(steps, depth, p1, p2, p3)
    g = moving_average(g, gain, steps.stakes)
    c = moving_average(c, cost, steps.stakes)
    now, variance = update_cold_offset(steps, cold[0], cold[1], h, error) if depth == 0.0 else cold
    return (
        (depth, n + 1.0, g, c, da, db, p1, p2, p3, up, down, now, variance, a, b, va, cab, vb),
        doubtful,
    )


def total(state: State) -> Above:
    """Return what a level with all above it adds up to, without `cold`."""
    _, _, _, _, da, db, p1, p2, p3, _, _, _, _, a, b, va, cab, vb = state
    return a + da, b + db, va + p1, cab + p2, vb + p3


def calibration(state: State) -> tuple[float, float, float, float, float]:
    """Return slope, intercept and their covariance, as a level and all above it see them."""
    _, n, _, _, da, db, p1, p2, p3, _, _, cold, variance, a, b, va, cab, vb = state
    h = 1.0 / (1.0 + n / FAMILIAR)
    return a + da, b + db + h * cold, va + p1, cab + p2, vb + p3 + h * h * variance


def answer(state: State) -> tuple[float, float]:
    """Return `speculate` for a context's average gain and cost, and `suggest`, from .5 on."""
    a, b, va, cab, vb = calibration(state)
    speculate = solve(a, b, va, cab, vb, break_even(state[2], state[3]))
    suggest = solve(a, b, va, cab, vb, _WORTH_SHOWING)
    return speculate, suggest if suggest < speculate else speculate
