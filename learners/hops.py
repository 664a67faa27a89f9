"""HOPS: hierarchical online Platt scaling with a cost-sensitive threshold.

Every level of the context path learns a calibration of confidences at once. A fine level learns
only its deviation from the coarser ones, so that its threshold is useful from the first outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headstart.calibration import FAMILIAR, LevelDeviation, solve, wanted
from learners.bounds import COUNT, STAKES, Bound, outside
from learners.hops_update import (
    COLD_PRIOR,
    PRIORS,
    TOP,
    Steps,
    answer,
    calibration,
    features,
    total,
    update_level,
)
from learners.outcome import Outcome
from learners.policy import HierarchicalPolicy, State, ThresholdPair, same_layout
from learners.pooling import pooled_calibration, typical

_FAR: Final = 1e9
_VARIANCE: Final = (1e-12, 1e3)
"""Of any parameter: the prior's are .004 to 2, and decay by `keep` bounds them below."""
_BOUNDS: Final = (
    Bound("depth", 0.0, 1e6), COUNT._replace(name="outcomes"), *STAKES,
    Bound("slope", -_FAR, _FAR), Bound("intercept", -_FAR, _FAR),
    Bound("slope variance", *_VARIANCE), Bound("covariance", -1e3, 1e3),
    Bound("intercept variance", *_VARIANCE), Bound("Page-Hinkley sum", 0.0, 1e6),
    Bound("Page-Hinkley sum", 0.0, 1e6), Bound("cold", -_FAR, _FAR),
    Bound("cold variance", *_VARIANCE), Bound("slope above", -1e12, 1e12),
    Bound("intercept above", -1e12, 1e12), Bound("slope variance above", 0.0, 1e6),
    Bound("covariance above", -1e6, 1e6), Bound("intercept variance above", 0.0, 1e6),
)  # fmt: skip
_CORRELATED: Final = 1.0 - 1e-9
"""The largest square of a correlation: at 1 the covariance has no inverse."""


@dataclass(frozen=True)
class Hops(Steps, HierarchicalPolicy):
    """Online Platt scaling (Gupta & Ramdas 2023), one Bayesian logistic regression per level.

    x = logit(p). Each level holds a deviation d = (da, db) of slope and intercept, with covariance
    P; a = 1 + sum da, b = sum db, q = sigma(a x + b), coarse level first. Per outcome y, with
    v = (x, 1) and s = 4 + v'P v: d <- d + 4 P v (y - q) / s, P <- P - P v v'P / s, which is a step
    of Newton's with the weight 1/4 for q (1 - q): this upper bound never oversteps (Böhning 1992).
    Before every eighth, decay: L = P^-1, L' = k L + (1 - k) prior, d <- L'^-1 k L d, k = keep^8.
    After each, a two-sided Page-Hinkley test (1954) on y - q with `slack` and `alarm`. It detects a
    bias, so an alarm inflates the variance of the intercept, here and at the finer levels, and
    not that of the slope: b's precision falls to a tenth, and nine tenths of the prior's are added
    (`slope_kept` below 1: the same for a, to that share).

    The coarsest level also learns `cold`, an offset of b in new contexts, weighted by
    1 / (1 + n / 2), n the outcomes of the finest level before this one. A predictor has seen as
    little of a new context as the learner, and is mostly overconfident there. n is all that a
    coarse level uses of a finer one.

    State, 18 floats: 0 depth, 1 outcomes, 2 gain, 3 cost (moving averages, ms), 4-5 d, 6-8 P (slope
    variance, covariance, intercept variance), 9-10 Page-Hinkley sums, 11-12 cold and its variance,
    13-17 sums over the levels above: a, b, and their covariance. Version 1 stored L d and L in 4-8,
    and likewise for cold at the coarsest level.
    """

    name = "hops"
    version = 2

    def initial(self) -> State:
        """Return the coarsest level's prior."""
        a, b = PRIORS[0]
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0 / a, 0.0, 1.0 / b, 0.0, 0.0,
                0.0, 1.0 / COLD_PRIOR, 1.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip

    def begin(self, parent: State) -> State:
        """Return the prior below `parent`, with the parent's average gain and cost."""
        depth = parent[0] + 1.0
        a, b = PRIORS[min(int(depth), len(PRIORS) - 1)]
        return (depth, 0.0, parent[2], parent[3], 0.0, 0.0, 1.0 / a, 0.0, 1.0 / b, 0.0, 0.0,
                parent[11], parent[12], *total(parent))  # fmt: skip

    def below(self, state: State, parent: State) -> State:
        """Return `state` rebased on `parent`."""
        return (*state[:11], parent[11], parent[12], *total(parent))

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        gain, cost = outcome.gain, outcome.cost
        judged = features(outcome.confidence, gain, cost), float(outcome.correct), gain, cost
        h = 1.0 / (1.0 + chain[-1][1] / FAMILIAR)
        above, cold, drifted = TOP, (chain[0][11], chain[0][12]), False
        learned = []
        for own in chain:
            state, drifted = update_level(self, own, above, judged, h, cold, drifted)
            above, cold = total(state), (state[11], state[12])
            learned.append(state)
        return learned

    def thresholds(self, state: State) -> ThresholdPair:
        """Return `speculate` for the context's average gain and cost, `suggest` for .5."""
        return ThresholdPair(*answer(state))

    def threshold(self, state: State, gain: float, cost: float) -> float:
        """Return the least confidence at which speculating pays for this gain and cost (ms)."""
        if gain <= 0.0 and cost <= 0.0:
            gain, cost = state[2], state[3]
        return solve(*calibration(state), wanted(gain, cost))

    def along(self, chain: Sequence[State]) -> tuple[float, float, float, float, float]:
        """Return the calibration at the end of a chain with the current states of all levels.

        Bit-identical to `below` from level to level, in one pass.
        """
        a, b, va, cab, vb = 1.0, 0.0, 0.0, 0.0, 0.0
        for state in chain:
            da, db, p1, p2, p3 = state[4:9]
            a, b, va, cab, vb = a + da, b + db, va + p1, cab + p2, vb + p3
        cold, variance = chain[0][11], chain[0][12]
        h = 1.0 / (1.0 + chain[-1][1] / FAMILIAR)
        return a, b + h * cold, va, cab, vb + h * h * variance

    def deviation(self, state: State) -> LevelDeviation:
        """Return this level's deviation from the level above."""
        depth, n, _, _, da, db, p1, p2, p3, _, _, cold, variance = state[:13]
        if depth > 0.0:
            cold = variance = 0.0
        return LevelDeviation(da, db, p1, p2, p3, cold, variance, n)

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:  # noqa: ARG002
        """Return the prior of another context of the coarsest level; see `learners.pooling`."""
        known = [state[4:9] for state in states]
        (a, b), (p1, p2, p3) = pooled_calibration(known, PRIORS[0])
        surest = sum(1.0 / state[12] for state in states)
        cold = sum(state[11] / state[12] for state in states) / surest
        return (0.0, 0.0, typical(state[2] for state in states),
                typical(state[3] for state in states), a, b, p1, p2, p3, 0.0, 0.0,
                cold, len(states) / surest, 1.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state`; also migrate version 1, which stored (L d, L) instead of (d, P)."""
        if version == 1 and len(state) == 18 and _invertible(state):
            state, version = _inverted(state), self.version
        return same_layout(self, version, state)

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        if (found := outside(state, _BOUNDS)) is not None:
            return found
        p1, p2, p3, va, cab, vb = *state[6:9], *state[15:18]
        if p2 * p2 > _CORRELATED * p1 * p3:
            return f"covariance is {p2:g}, which two variances of {p1:g} and {p3:g} do not allow"
        if cab * cab > (1.0 + 1e-6) * va * vb + 1e-12:
            return f"covariance above is {cab:g}, which {va:g} and {vb:g} do not allow"
        return None


def _invertible(state: State) -> bool:
    """Return whether the precisions of a state of version 1 have an inverse."""
    definite = state[6] * state[8] > state[7] * state[7]
    return definite and (state[0] != 0.0 or state[12] != 0.0)


def _inverted(state: State) -> State:
    """Return version 2 of a state of version 1."""
    e1, e2, l1, l2, l3 = state[4:9]
    scale = 1.0 / (l1 * l3 - l2 * l2)
    p1, p2, p3 = l3 * scale, -l2 * scale, l1 * scale
    cold, variance = state[11:13]
    if state[0] == 0.0:
        cold, variance = cold / variance, 1.0 / variance
    return (*state[:4], p1 * e1 + p2 * e2, p2 * e1 + p3 * e2, p1, p2, p3, *state[9:11],
            cold, variance, *state[13:])  # fmt: skip
