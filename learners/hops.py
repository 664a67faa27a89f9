"""HOPS: hierarchical online Platt scaling with a cost-sensitive threshold (design §5).

What a confidence is worth is learned at every level of the context path at once; a fine level
only learns how it differs from the coarser ones, so that it answers well from its first outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Final

from headstart.calibration import FAMILIAR, Deviation, solve, wanted
from learners.hops_run import begins_at_once, learn_run
from learners.hops_steps import COLD_PRIOR, EVERY, NOISE, PRIORS, SLOPE_MIN, SURE, Steps, heard
from learners.outcome import Columns, Outcome, Part
from learners.policy import SUGGEST_TARGET, Joint, State, Thresholds, same_layout
from learners.pooling import pooled_calibration, typical

_WORTH_SHOWING: Final = wanted(1.0 - SUGGEST_TARGET, SUGGEST_TARGET)


@dataclass(frozen=True)
class Hops(Steps, Joint):
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
                parent[11], parent[12], *_total(parent))  # fmt: skip

    def below(self, state: State, parent: State) -> State:
        """Return `state` on top of what `parent` says now."""
        return (*state[:11], parent[11], parent[12], *_total(parent))

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        gain, cost = outcome.gain, outcome.cost
        x = heard(outcome.confidence, gain, cost)
        return self._climb(chain, x, 1.0 if outcome.correct else 0.0, gain, cost)

    def learn_run(self, parts: Sequence[Part], run: Columns) -> Sequence[State]:
        """Return what `learn` gives outcome by outcome."""
        if not begins_at_once(parts, len(run.correct)):
            return super().learn_run(parts, run)
        return learn_run(self, parts, run)

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
            if n % EVERY == 0.0 and n:
                da, db, p1, p2, p3 = self.forgotten(depth, da, db, p1, p2, p3)
            if alarmed:
                p1, p2, p3 = self.doubted(depth, p1, p2, p3)
            slope = a + da
            z = (slope if slope > SLOPE_MIN else SLOPE_MIN) * x + b + db + fresh
            error = y - 1.0 / (1.0 + exp(-z if z > -SURE else SURE))
            v1, v2 = p1 * x + p2, p2 * x + p3
            shrink = 1.0 / (NOISE + v1 * x + v2)
            step = NOISE * error * shrink
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
                p1, p2, p3 = self.doubted(depth, p1, p2, p3)
            g = g + gain_rate * (gain - g) if g > 0.0 else gain
            c = c + cost_rate * (cost - c) if c > 0.0 else cost
            if not depth:
                cold, variance = self.colder(cold, variance, h, error)
                fresh = h * cold
            learned.append((depth, n + 1.0, g, c, da, db, p1, p2, p3, up, down,
                            cold, variance, a, b, va, cab, vb))  # fmt: skip
            a, b, va, cab, vb = a + da, b + db, va + p1, cab + p2, vb + p3
        return learned

    def thresholds(self, state: State) -> Thresholds:
        """Return `speculate` for the context's average gain and cost, `suggest` from .5 on."""
        calibration = self.calibration(state)
        speculate = solve(*calibration, wanted(state[2], state[3]))
        suggest = solve(*calibration, _WORTH_SHOWING)
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
        (a, b), (p1, p2, p3) = pooled_calibration(known, PRIORS[0])
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
