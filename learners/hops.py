"""HOPS: hierarchical online Platt scaling with a cost-sensitive threshold (design §5).

What a confidence is worth is learned at every level of the context path at once; a fine level
only learns how it differs from the coarser ones, so that it answers well from its first outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, sqrt
from typing import Final

from headstart.calibration import FAMILIAR, LOGIT_MAX, Deviation, logit, solve, wanted
from learners.outcome import Outcome
from learners.policy import SUGGEST_TARGET, State, Thresholds, clamp, same_layout
from learners.pooling import pooled_calibration, typical

_PRIORS: Final = ((24.0, 6.0), (240.0, 18.0), (240.0, 48.0), (240.0, 32.0))
"""Prior precision of (slope, intercept) deviations by depth; deeper levels take the last."""
_COLD_PRIOR: Final = 0.5
"""Prior precision of what a context not yet known adds to the intercept."""
_FAR_BELOW: Final = 0.7
_FAR_ABOVE: Final = 3.0
"""How far on the other side of even odds than the break-even point an outcome counts at most, as a
product of logits: else a miss at .02 would make the line steeper, and so .9 more credible."""
_NOISE: Final = 4.0
"""1 over the largest weight that one outcome can have, q (1 - q) <= 1/4 (Böhning 1992)."""
_KEPT: Final = 0.1
"""Share of what was known of the intercept that an alarm leaves."""
_EVERY: Final = 8.0
"""Outcomes between two times of forgetting, all of them at once: one matrix inversion for eight."""
_SLOPE_MIN: Final = 0.05
_SURE: Final = 12.0


@dataclass(frozen=True)
class Hops:
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

    keep: float = 0.9995
    slack: float = 0.055
    alarm: float = 13.0
    stakes: float = 0.05
    slope_kept: float = 1.0

    name = "hops"
    version = 2

    def initial(self) -> State:
        """Return the coarsest level's prior."""
        a, b = _PRIORS[0]
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0 / a, 0.0, 1.0 / b, 0.0, 0.0,
                0.0, 1.0 / _COLD_PRIOR, 1.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip

    def begin(self, parent: State) -> State:
        """Return the prior below `parent`, whose average gain and cost it takes over."""
        depth = parent[0] + 1.0
        a, b = _PRIORS[min(int(depth), len(_PRIORS) - 1)]
        return (depth, 0.0, parent[2], parent[3], 0.0, 0.0, 1.0 / a, 0.0, 1.0 / b, 0.0, 0.0,
                parent[11], parent[12], *_total(parent))  # fmt: skip

    def below(self, state: State, parent: State) -> State:
        """Return `state` on top of what `parent` says now."""
        return (*state[:11], parent[11], parent[12], *_total(parent))

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        gain, cost = outcome.gain, outcome.cost
        x = logit(outcome.confidence)
        even = wanted(gain, cost)
        far = _FAR_BELOW if x < 0.0 else _FAR_ABOVE
        if x * even < -far:
            x = -far / clamp(even, -LOGIT_MAX, LOGIT_MAX)
        return self._climb(chain, x, 1.0 if outcome.correct else 0.0, gain, cost)

    def _climb(  # one flat loop: a call for each level costs a quarter
        self, chain: Sequence[State], x: float, y: float, gain: float, cost: float
    ) -> Sequence[State]:
        slack, alarm = self.slack, self.alarm
        gain_rate = self.stakes if gain > 0.0 else 0.0
        cost_rate = self.stakes if cost > 0.0 else 0.0
        h = 1.0 / (1.0 + chain[-1][1] / FAMILIAR)
        a, b, va, cab, vb, cold, variance = 1.0, 0.0, 0.0, 0.0, 0.0, chain[0][11], chain[0][12]
        fresh = h * cold
        learned: list[State] = []
        alarmed = False
        for state in chain:
            depth, n, g, c, da, db, p1, p2, p3, up, down, _, _, _, _, _, _, _ = state
            if n % _EVERY == 0.0 and n:
                da, db, p1, p2, p3 = self._forgotten(depth, da, db, p1, p2, p3)
            if alarmed:
                p1, p2, p3 = self._doubted(depth, p1, p2, p3)
            slope = a + da
            z = (slope if slope > _SLOPE_MIN else _SLOPE_MIN) * x + b + db + fresh
            error = y - 1.0 / (1.0 + exp(-z if z > -_SURE else _SURE))
            v1, v2 = p1 * x + p2, p2 * x + p3
            shrink = 1.0 / (_NOISE + v1 * x + v2)
            step = _NOISE * error * shrink
            da += v1 * step
            db += v2 * step
            step = v1 * shrink
            p1 -= v1 * step
            p2 -= v2 * step
            p3 -= v2 * v2 * shrink
            up += error - slack
            if up < 0.0:
                up = 0.0
            down -= error + slack
            if down < 0.0:
                down = 0.0
            if up > alarm or down > alarm:
                up, down, alarmed = 0.0, 0.0, True
                p1, p2, p3 = self._doubted(depth, p1, p2, p3)
            g = g + gain_rate * (gain - g) if g > 0.0 else gain
            c = c + cost_rate * (cost - c) if c > 0.0 else cost
            if not depth:
                cold, variance = self._cold(cold, variance, h, error)
                fresh = h * cold
            learned.append((depth, n + 1.0, g, c, da, db, p1, p2, p3, up, down,
                            cold, variance, a, b, va, cab, vb))  # fmt: skip
            a, b, va, cab, vb = a + da, b + db, va + p1, cab + p2, vb + p3
        return learned

    @cached_property
    def _fading(self) -> tuple[tuple[float, float, float], ...]:
        """By depth: what is kept of the evidence, and what the prior adds to L of a and of b."""
        keep = self.keep**_EVERY
        return tuple((keep, (1.0 - keep) * a, (1.0 - keep) * b) for a, b in _PRIORS)

    def _forgotten(
        self, depth: float, da: float, db: float, p1: float, p2: float, p3: float
    ) -> tuple[float, float, float, float, float]:
        """Return d and P with `_EVERY` outcomes' worth of evidence faded towards the prior."""
        keep, fresh_a, fresh_b = self._fading[int(depth) if depth < 4.0 else 3]
        scale = keep / (p1 * p3 - p2 * p2)
        l1, l2, l3 = p3 * scale, -p2 * scale, p1 * scale
        e1, e2 = l1 * da + l2 * db, l2 * da + l3 * db
        l1 += fresh_a
        l3 += fresh_b
        scale = 1.0 / (l1 * l3 - l2 * l2)
        p1, p2, p3 = l3 * scale, -l2 * scale, l1 * scale
        return p1 * e1 + p2 * e2, p2 * e1 + p3 * e2, p1, p2, p3

    def _doubted(self, depth: float, p1: float, p2: float, p3: float) -> tuple[float, float, float]:
        """Return P after an alarm: of the intercept hardly more is known than at first."""
        prior = _PRIORS[int(depth) if depth < 4.0 else 3]
        if self.slope_kept < 1.0:
            p1, p2 = p1 / self.slope_kept, p2 / sqrt(self.slope_kept)
            gained = (1.0 - self.slope_kept) * prior[0]
            shrink = gained / (1.0 + gained * p1)
            p1, p2, p3 = p1 - shrink * p1 * p1, p2 - shrink * p1 * p2, p3 - shrink * p2 * p2
        p2, p3 = p2 / sqrt(_KEPT), p3 / _KEPT
        gained = (1.0 - _KEPT) * prior[1]
        shrink = gained / (1.0 + gained * p3)
        return p1 - shrink * p2 * p2, p2 - shrink * p2 * p3, p3 - shrink * p3 * p3

    def _cold(self, cold: float, variance: float, h: float, error: float) -> tuple[float, float]:
        """Return `cold` and its variance after an outcome in a context known as little as `h`."""
        kept = self.keep / variance
        precision = kept + (1.0 - self.keep) * _COLD_PRIOR
        faded = kept * cold / precision
        precision += h * h / _NOISE
        return faded + h * error / precision, 1.0 / precision

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
        _, n, _, _, da, db, p1, p2, p3, _, _, cold, variance, a, b, va, cab, vb = state
        h = 1.0 / (1.0 + n / FAMILIAR)
        return a + da, b + db + h * cold, va + p1, cab + p2, vb + p3 + h * h * variance

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

    def deviation(self, state: State) -> Deviation:
        """Return what this level knows beyond the level above."""
        depth, n, _, _, da, db, p1, p2, p3, _, _, cold, variance = state[:13]
        if depth > 0.0:
            cold = variance = 0.0
        return Deviation(da, db, p1, p2, p3, cold, variance, n)

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:  # noqa: ARG002
        """Return the prior of one more coarsest context; see `learners.pooling`."""
        known = [state[4:9] for state in states]
        (a, b), (p1, p2, p3) = pooled_calibration(known, _PRIORS[0])
        surest = sum(1.0 / state[12] for state in states)
        cold = sum(state[11] / state[12] for state in states) / surest
        return (0.0, 0.0, typical(state[2] for state in states),
                typical(state[3] for state in states), a, b, p1, p2, p3, 0.0, 0.0,
                cold, len(states) / surest, 1.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state`; also read version 1, which kept (L d, L) in place of (d, P)."""
        if version == 1 and len(state) == 18 and state[6] * state[8] > state[7] * state[7]:
            state, version = _inverted(state), self.version
        return same_layout(self, version, state)


def _total(state: State) -> tuple[float, float, float, float, float]:
    """Return (a, b, their covariance) of a level with all above it, without `cold`."""
    _, _, _, _, da, db, p1, p2, p3, _, _, _, _, a, b, va, cab, vb = state
    return a + da, b + db, va + p1, cab + p2, vb + p3


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
