"""HOPS: hierarchical online Platt scaling with a cost-sensitive threshold (design §5).

What a confidence is worth is learned at every level of the context path at once; a fine level
only learns how it differs from the coarser ones, so that it answers well from its first outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Final

from headstart.calibration import FAMILIAR, LOGIT_MAX, Deviation, logit, solve, wanted
from learners.outcome import Outcome
from learners.policy import SUGGEST_TARGET, State, Thresholds, clamp, same_layout

_PRIORS: Final = ((24.0, 8.0), (120.0, 24.0), (120.0, 20.0), (240.0, 48.0))
"""Prior precision of (slope, intercept) deviations by depth; deeper levels take the last."""
_COLD_PRIOR: Final = 0.5
"""Prior precision of what a context not yet known adds to the intercept."""
_FAR_BELOW: Final = 0.7
_FAR_ABOVE: Final = 3.0
"""How far on the other side of even odds than the break-even point an outcome counts at most, as a
product of logits: else a miss at .02 would make the line steeper, and so .9 more credible."""
_WEIGHT_MIN: Final = 0.06
_SLOPE_MIN: Final = 0.05
_SURE: Final = 12.0


@dataclass(frozen=True)
class Hops:
    """Online Platt scaling (Gupta & Ramdas 2023), one Bayesian logistic regression per level.

    x = logit(p). Each level holds a deviation (da, db) of slope and intercept; a = 1 + sum da,
    b = sum db, q = sigma(a x + b), coarse level first. Per outcome y, with precision L and
    e = L d: (1) forget: e <- keep e, L <- keep L + (1 - keep) prior; (2) with w = max(q (1 - q),
    .06) and v = (x, 1): L <- L + w v v', e <- e + v (w v·d + y - q); (3) Page-Hinkley (1954) on
    y - q, both sides, `slack` and `alarm`: on alarm L <- .05 L + .95 prior, d as it was.

    The coarsest level also learns `cold`: what a context adds to b by being new, times
    1 / (1 + n / 2), n the outcomes of the finest level before this one. A predictor has seen as
    little of a new context as the learner, and is mostly too sure there. n is all that a coarse
    level sees of a finer one.

    State: 0 depth, 1 outcomes, 2 gain, 3 cost (moving averages, ms), 4-5 e, 6-8 L, 9-10
    Page-Hinkley, 11-12 cold (at the coarsest level: e and L; below: value and variance),
    13-17 what the levels above add up to: a, b, and their covariance.
    """

    keep: float = 0.9993
    slack: float = 0.05
    alarm: float = 12.0
    stakes: float = 0.05

    name = "hops"
    version = 1

    def initial(self) -> State:
        """Return the coarsest level's prior."""
        a, b = _PRIORS[0]
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, a, 0.0, b, 0.0, 0.0, 0.0, _COLD_PRIOR,
                1.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip

    def begin(self, parent: State) -> State:
        """Return the prior below `parent`, whose average gain and cost it takes over."""
        depth = parent[0] + 1.0
        a, b = _PRIORS[min(int(depth), len(_PRIORS) - 1)]
        return (depth, 0.0, parent[2], parent[3], 0.0, 0.0, a, 0.0, b, 0.0, 0.0,
                *_cold(parent), *_total(parent))  # fmt: skip

    def below(self, state: State, parent: State) -> State:
        """Return `state` on top of what `parent` says now."""
        return (*state[:11], *_cold(parent), *_total(parent))

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        gain, cost = outcome.gain, outcome.cost
        x, y = logit(outcome.confidence), 1.0 if outcome.correct else 0.0
        even = wanted(gain, cost)
        far = _FAR_BELOW if x < 0.0 else _FAR_ABOVE
        if x * even < -far:
            x = -far / clamp(even, -LOGIT_MAX, LOGIT_MAX)
        return self._climb(chain, x, y, gain, cost)

    def _climb(  # one flat loop: a call for each level costs a quarter
        self, chain: Sequence[State], x: float, y: float, gain: float, cost: float
    ) -> Sequence[State]:
        keep, slack, alarm, rate = self.keep, self.slack, self.alarm, self.stakes
        gone = 1.0 - keep
        h = 1.0 / (1.0 + chain[-1][1] / FAMILIAR)
        a, b, va, cab, vb, cold, cold_variance = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        learned, last = [], len(chain) - 1
        for level, state in enumerate(chain):
            depth, n, g, c, e1, e2, l1, l2, l3, up, down, ce, cl, _, _, _, _, _ = state
            p1, p3 = _PRIORS[level] if level < 4 else _PRIORS[3]
            e1 *= keep
            e2 *= keep
            l1 = keep * l1 + gone * p1
            l2 *= keep
            l3 = keep * l3 + gone * p3
            det = 1.0 / (l1 * l3 - l2 * l2)
            da = (l3 * e1 - l2 * e2) * det
            db = (l1 * e2 - l2 * e1) * det
            if not level:
                ce, cl = keep * ce, keep * cl + gone * _COLD_PRIOR
                cold = ce / cl
            z = (a + da if a + da > _SLOPE_MIN else _SLOPE_MIN) * x + b + db + h * cold
            q = 1.0 / (1.0 + exp(-z if -_SURE < z < _SURE else -_SURE if z > 0.0 else _SURE))
            error, w = y - q, q - q * q
            if w < _WEIGHT_MIN:
                w = _WEIGHT_MIN
            wx = w * x
            t = wx * da + w * db + error
            e1 += x * t
            e2 += t
            l1 += wx * x
            l2 += wx
            l3 += w
            up = up + error - slack if up + error > slack else 0.0
            down = down - error - slack if down - error > slack else 0.0
            if up > alarm or down > alarm:
                up = down = 0.0
                e1, e2, l1, l2, l3 = _doubted(e1, e2, l1, l2, l3, (p1, p3))
            if gain > 0.0:
                g = g + rate * (gain - g) if g > 0.0 else gain
            if cost > 0.0:
                c = c + rate * (cost - c) if c > 0.0 else cost
            if level:
                ce, cl = cold, cold_variance
            else:
                ce, cl = ce + h * (w * h * cold + error), cl + w * h * h
                cold, cold_variance = ce / cl, 1.0 / cl
            learned.append(
                (depth, n + 1.0, g, c, e1, e2, l1, l2, l3, up, down, ce, cl, a, b, va, cab, vb)
            )
            if level < last:  # what _total says, without a call
                det = 1.0 / (l1 * l3 - l2 * l2)
                a, b = a + (l3 * e1 - l2 * e2) * det, b + (l1 * e2 - l2 * e1) * det
                va, cab, vb = va + l3 * det, cab - l2 * det, vb + l1 * det
        return learned

    def thresholds(self, state: State) -> Thresholds:
        """Return `speculate` for the context's average gain and cost, `suggest` from .5 on."""
        calibration = self.calibration(state)
        speculate = solve(*calibration, wanted(state[2], state[3]))
        suggest = solve(*calibration, wanted(1.0 - SUGGEST_TARGET, SUGGEST_TARGET))
        return Thresholds(speculate, suggest if suggest < speculate else speculate)

    def threshold(self, state: State, gain: float, cost: float) -> float:
        """Return the least confidence that is worth this gain and cost."""
        if gain <= 0.0 and cost <= 0.0:
            gain, cost = state[2], state[3]
        return solve(*self.calibration(state), wanted(gain, cost))

    def calibration(self, state: State) -> tuple[float, float, float, float, float]:
        """Return slope, intercept and their covariance, as a level and all above it see them."""
        d, n, _, _, e1, e2, l1, l2, l3, _, _, cold, variance, a, b, va, cab, vb = state
        if d == 0.0:
            cold, variance = cold / variance, 1.0 / variance
        h = 1.0 / (1.0 + n / FAMILIAR)
        det = 1.0 / (l1 * l3 - l2 * l2)
        return (
            a + (l3 * e1 - l2 * e2) * det, b + (l1 * e2 - l2 * e1) * det + h * cold,
            va + l3 * det, cab - l2 * det, vb + l1 * det + h * h * variance,
        )  # fmt: skip

    def along(self, chain: Sequence[State]) -> tuple[float, float, float, float, float]:
        """Return the calibration at the end of a chain, every level as it stands now.

        To the bit that of `below` from level to level, in one pass and without their states.
        """
        a, b, va, cab, vb = 1.0, 0.0, 0.0, 0.0, 0.0
        for state in chain:
            e1, e2, l1, l2, l3 = state[4:9]
            det = 1.0 / (l1 * l3 - l2 * l2)
            a, b = a + (l3 * e1 - l2 * e2) * det, b + (l1 * e2 - l2 * e1) * det
            va, cab, vb = va + l3 * det, cab - l2 * det, vb + l1 * det
        cold, variance = _cold(chain[0])
        h = 1.0 / (1.0 + chain[-1][1] / FAMILIAR)
        return a, b + h * cold, va, cab, vb + h * h * variance

    def deviation(self, state: State) -> Deviation:
        """Return what this level knows beyond the level above."""
        _, n, _, _, e1, e2, l1, l2, l3 = state[:9]
        det = 1.0 / (l1 * l3 - l2 * l2)
        cold, variance = _cold(state) if state[0] == 0.0 else (0.0, 0.0)
        return Deviation(
            (l3 * e1 - l2 * e2) * det, (l1 * e2 - l2 * e1) * det,
            l3 * det, -l2 * det, l1 * det, cold, variance, n,
        )  # fmt: skip

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state` if this version wrote it."""
        return same_layout(self, version, state)


def _total(state: State) -> tuple[float, float, float, float, float]:
    """Return (a, b, their covariance) of a level with all above it, without `cold`."""
    _, _, _, _, e1, e2, l1, l2, l3, _, _, _, _, a, b, va, cab, vb = state
    det = 1.0 / (l1 * l3 - l2 * l2)
    return (
        a + (l3 * e1 - l2 * e2) * det, b + (l1 * e2 - l2 * e1) * det,
        va + l3 * det, cab - l2 * det, vb + l1 * det,
    )  # fmt: skip


def _cold(state: State) -> tuple[float, float]:
    """Return value and variance of `cold`."""
    if state[0] == 0.0:
        return state[11] / state[12], 1.0 / state[12]
    return state[11], state[12]


def _doubted(
    e1: float, e2: float, l1: float, l2: float, l3: float, prior: tuple[float, float]
) -> tuple[float, float, float, float, float]:
    """Return e and L after an alarm: the same deviation, known hardly better than at first."""
    det = 1.0 / (l1 * l3 - l2 * l2)
    da, db = (l3 * e1 - l2 * e2) * det, (l1 * e2 - l2 * e1) * det
    l1 = 0.05 * l1 + 0.95 * prior[0]
    l2 *= 0.05
    l3 = 0.05 * l3 + 0.95 * prior[1]
    return l1 * da + l2 * db, l2 * da + l3 * db, l1, l2, l3
