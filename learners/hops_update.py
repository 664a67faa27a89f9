"""The arithmetic of HOPS for one level (update, decay, drift, threshold), and its constants.

Functions of numbers and tuples only, so that Numba can compile them (`kernels.learning`).
`learners.hops_backtest` does the same over a history.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, sqrt
from typing import Final

from headstart.calibration import FAMILIAR, LOGIT_MAX, break_even, logit, solve
from learners.policy import SUGGEST_TARGET, State, clamp, moving_average

Above = tuple[float, float, float, float, float]
"""Sums over the levels above: slope, intercept, and their covariance (3)."""
OutcomeFeatures = tuple[float, float, float, float]
"""Clamped logit of an outcome's confidence (`features`), 1 for a hit else 0, gain, cost."""
Cold = tuple[float, float]
"""The offset of the intercept in new contexts, and its variance."""
Kept = tuple[float, float, float]
Fading = tuple[Kept, Kept, Kept, Kept]

PRIORS: Final = ((24.0, 6.0), (240.0, 18.0), (240.0, 48.0), (240.0, 32.0))
"""Prior precision of (slope, intercept) deviations by depth; deeper levels take the last."""
COLD_PRIOR: Final = 0.5
"""Prior precision of the offset of the intercept in new contexts."""
FAR_BELOW: Final = 0.7
FAR_ABOVE: Final = 3.0
"""Limits of an outcome's logit on the other side of even odds than the break-even point, as a
product of the two logits: without them a miss at .02 would make the line steeper, and so .9 more
credible."""
NOISE: Final = 4.0
"""1 over the largest weight of one outcome, q (1 - q) <= 1/4 (Böhning 1992)."""
_INTERCEPT_KEPT: Final = 0.1
"""Share of the intercept's precision that remains after an alarm."""
EVERY: Final = 8.0
"""Outcomes between two decays, which are done at once: one matrix inversion for eight."""
SLOPE_MIN: Final = 0.05
SURE: Final = 12.0
_WORTH_SHOWING: Final = break_even(1.0 - SUGGEST_TARGET, SUGGEST_TARGET)
TOP: Final[Above] = (1.0, 0.0, 0.0, 0.0, 0.0)
"""`Above` of the coarsest level."""


def features(confidence: float, gain: float, cost: float) -> float:
    """Return the clamped logit of a confidence."""
    x, even = logit(confidence), break_even(gain, cost)
    far = FAR_BELOW if x < 0.0 else FAR_ABOVE
    return -far / clamp(even, -LOGIT_MAX, LOGIT_MAX) if x * even < -far else x


@dataclass(frozen=True)
class Steps:
    """The parameters of `Hops`, and values derived from them."""

    keep: float = 0.9995
    slack: float = 0.055
    alarm: float = 13.0
    stakes: float = 0.05
    slope_kept: float = 1.0

    @cached_property
    def fading(self) -> Fading:
        """By depth: share of the evidence kept by a decay, and the prior's addition to L (a, b)."""
        keep = self.keep**EVERY
        of = [(keep, (1.0 - keep) * a, (1.0 - keep) * b) for a, b in PRIORS]
        return of[0], of[1], of[2], of[3]


def decay(
    steps: Steps, depth: float, da: float, db: float, p1: float, p2: float, p3: float
) -> tuple[float, float, float, float, float]:
    """Return d and P, decayed towards the prior for `EVERY` outcomes."""
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
    """Return P after an alarm, with the intercept's variance almost that of the prior."""
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
    """Return `cold` and its variance after an outcome in a context of newness `h`, in (0, 1]."""
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
    drifted: bool,
) -> tuple[State, bool]:
    """Return a level's state after an outcome, and whether it or a coarser level has drifted.

    `own`: the state before; `above`, `cold` and `drifted`: results of the level above, or initial
    values for the coarsest; `h`: newness of the finest level, in (0, 1].
    """
    depth, n, g, c, da, db, p1, p2, p3, up, down, _, _, _, _, _, _, _ = own
    a, b, va, cab, vb = above
    x, y, gain, cost = outcome
    if n % EVERY == 0.0 and n > 0.0:
        da, db, p1, p2, p3 = decay(steps, depth, da, db, p1, p2, p3)
    if drifted:
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
        up, down, drifted = 0.0, 0.0, True
        p1, p2, p3 = inflate_after_drift(steps, depth, p1, p2, p3)
    g = moving_average(g, gain, steps.stakes)
    c = moving_average(c, cost, steps.stakes)
    now, variance = update_cold_offset(steps, cold[0], cold[1], h, error) if depth == 0.0 else cold
    return (
        (depth, n + 1.0, g, c, da, db, p1, p2, p3, up, down, now, variance, a, b, va, cab, vb),
        drifted,
    )


def total(state: State) -> Above:
    """Return the sums over a level and all above it, without `cold`."""
    _, _, _, _, da, db, p1, p2, p3, _, _, _, _, a, b, va, cab, vb = state
    return a + da, b + db, va + p1, cab + p2, vb + p3


def calibration(state: State) -> tuple[float, float, float, float, float]:
    """Return slope, intercept and their covariance, summed over a level and all above it."""
    _, n, _, _, da, db, p1, p2, p3, _, _, cold, variance, a, b, va, cab, vb = state
    h = 1.0 / (1.0 + n / FAMILIAR)
    return a + da, b + db + h * cold, va + p1, cab + p2, vb + p3 + h * h * variance


def answer(state: State) -> tuple[float, float]:
    """Return `speculate` for a context's average gain and cost, and `suggest` for .5."""
    a, b, va, cab, vb = calibration(state)
    speculate = solve(a, b, va, cab, vb, break_even(state[2], state[3]))
    suggest = solve(a, b, va, cab, vb, _WORTH_SHOWING)
    return speculate, suggest if suggest < speculate else speculate
