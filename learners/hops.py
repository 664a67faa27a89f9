"""HOPS: hierarchical online Platt scaling with a cost-sensitive threshold.

What a confidence is worth is learned at every level of the context path at once; a fine level
only learns how it differs from the coarser ones, so that it answers well from its first outcome.
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
"""Of any parameter: the prior's are .004 to 2, and `keep` forgets what would make them tiny."""
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
    of Newton's with the weight 1/4 for q (1 - q): its bound never steps too far (Böhning 1992).
    Before every eighth, forget: L = P^-1, L' = k L + (1 - k) prior, d <- L'^-1 k L d, k = keep^8.
    After each, Page-Hinkley (1954) on y - q, both sides, `slack` and `alarm`. What it hears is a
    bias, so the alarm doubts the intercept, here and at the finer levels of the chain, and leaves
    the slope: b's precision falls to a tenth, and nine tenths of the prior's are added
    (`slope_kept` below 1: the same for a, to that share).

    The coarsest level also learns `cold`: what a context adds to b by being new, times
    1 / (1 + n / 2), n the outcomes of the finest level before this one. A predictor has seen as
    little of a new context as the learner, and is mostly too sure there. n is all that a coarse
    level sees of a finer one.

    State: 0 depth, 1 outcomes, 2 gain, 3 cost (moving averages, ms), 4-5 d, 6-8 P, 9-10
    Page-Hinkley, 11-12 cold and its variance, 13-17 what the levels above add up to: a, b, and
    their covariance. Version 1 held L d and L in 4-8, and so for cold at the coarsest level.
    """

    name = "hops"
    version = 2

    def initial(self) -> State:
        """Return the coarsest level's prior."""
        a, b = PRIORS[0]
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0 / a, 0.0, 1.0 / b, 0.0, 0.0,
                0.0, 1.0 / COLD_PRIOR, 1.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip

    def begin(self, parent: State) -> State:
        """Return the prior below `parent`, whose average gain and cost it takes over."""
        depth = parent[0] + 1.0
        a, b = PRIORS[min(int(depth), len(PRIORS) - 1)]
        return (depth, 0.0, parent[2], parent[3], 0.0, 0.0, 1.0 / a, 0.0, 1.0 / b, 0.0, 0.0,
                parent[11], parent[12], *total(parent))  # fmt: skip

    def below(self, state: State, parent: State) -> State:
        """Return `state` on top of what `parent` says now."""
        return (*state[:11], parent[11], parent[12], *total(parent))

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        gain, cost = outcome.gain, outcome.cost
        judged = features(outcome.confidence, gain, cost), float(outcome.correct), gain, cost
        h = 1.0 / (1.0 + chain[-1][1] / FAMILIAR)
        above, cold, doubtful = TOP, (chain[0][11], chain[0][12]), False
        learned = []
        for own in chain:
            state, doubtful = update_level(self, own, above, judged, h, cold, doubtful)
            above, cold = total(state), (state[11], state[12])
            learned.append(state)
        return learned

    def thresholds(self, state: State) -> ThresholdPair:
        """Return `speculate` for the context's average gain and cost, `suggest` from .5 on."""
        return ThresholdPair(*answer(state))

    def threshold(self, state: State, gain: float, cost: float) -> float:
        """Return the least confidence that is worth this gain and cost."""
        if gain <= 0.0 and cost <= 0.0:
            gain, cost = state[2], state[3]
        return solve(*calibration(state), wanted(gain, cost))

    def along(self, chain: Sequence[State]) -> tuple[float, float, float, float, float]:
        """Return the calibration at the end of a chain, every level as it stands now.

        To the bit that of `below` from level to level, in one pass and without their states.
        """
        a, b, va, cab, vb = 1.0, 0.0, 0.0, 0.0, 0.0
        for state in chain:
            da, db, p1, p2, p3 = state[4:9]
            a, b, va, cab, vb = a + da, b + db, va + p1, cab + p2, vb + p3
        cold, variance = chain[0][11], chain[0][12]
        h = 1.0 / (1.0 + chain[-1][1] / FAMILIAR)
        return a, b + h * cold, va, cab, vb + h * h * variance

    def deviation(self, state: State) -> LevelDeviation:
        """Return what this level knows beyond the level above."""
        depth, n, _, _, da, db, p1, p2, p3, _, _, cold, variance = state[:13]
        if depth > 0.0:
            cold = variance = 0.0
        return LevelDeviation(da, db, p1, p2, p3, cold, variance, n)

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:  # noqa: ARG002
        """Return the prior of one more coarsest context; see `learners.pooling`."""
        known = [state[4:9] for state in states]
        (a, b), (p1, p2, p3) = pooled_calibration(known, PRIORS[0])
        surest = sum(1.0 / state[12] for state in states)
        cold = sum(state[11] / state[12] for state in states) / surest
        return (0.0, 0.0, typical(state[2] for state in states),
                typical(state[3] for state in states), a, b, p1, p2, p3, 0.0, 0.0,
                cold, len(states) / surest, 1.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state`; also read version 1, which kept (L d, L) in place of (d, P)."""
        if version == 1 and len(state) == 18 and _invertible(state):
            state, version = _inverted(state), self.version
        return same_layout(self, version, state)

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length cannot be of this policy; None: it can be."""
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
