"""HOPS over the outcomes of many contexts at once, for replay: the arithmetic of `hops`, flat.

What `Hops` does with one chain of stored states is done here to the bit (a law in the tests of
replay), in one pass over a chain, and only with what the next outcome reads. Contexts are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from typing import Any

from headstart.calibration import FAMILIAR, LOGIT_MAX, logit, solve, wanted
from learners.hops import _EVERY, _FAR_ABOVE, _FAR_BELOW, _NOISE, _SLOPE_MIN, _SURE, Hops
from learners.outcome import Outcome
from learners.policy import clamp

_LEVELS = 8
"""Depths from which on levels begin alike."""
Calibration = tuple[float, float, float, float, float]


class HopsWalk:
    """The states of one `Hops` by context, and of what was asked about and is not yet judged.

    A state here: outcomes, gain, cost, d (2), P (3), Page-Hinkley (2), as in `Hops`; `cold` and
    its variance stand apart, by coarsest context. What `Hops` adds up of the levels above is not
    kept, because a chain is always read from its beginning.
    """

    def __init__(self, policy: Hops) -> None:
        self._policy = policy
        self._states: list[Any] = []
        self._waiting: dict[int, tuple[Calibration, float, float]] = {}
        state = policy.initial()
        self._first_cold = state[11], state[12]
        self._cold: dict[int, tuple[float, float]] = {}
        self._fresh = []
        for _ in range(_LEVELS):
            self._fresh.append(state[1:11])
            state = policy.begin(state)

    def through(
        self, steps: Iterable[tuple[tuple[int, ...], Outcome | None, int]], contexts: int
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Answer and learn, in order; return for each judged prediction what was in force.

        That is (thresholds for its own gain and cost, thresholds for its context's average ones).
        A step is a chain of contexts with no outcome and a number, where it is only asked about,
        or with its outcome and that number (-1: asked about just now). `contexts`: how many there
        are.
        """
        states, waiting = self._states, self._waiting
        states.extend([None] * (contexts - len(states)))
        thresholds: list[float] = []
        served: list[float] = []
        for chain, outcome, asked in steps:
            found = [states[level] for level in chain]
            if None in found:
                self._begin(found)
            if outcome is None:
                waiting[asked] = self._along(chain, found), found[-1][1], found[-1][2]
                continue
            even = wanted(outcome.gain, outcome.cost)
            now = self._learn(chain, found, outcome, even)
            if asked < 0:
                calibration, gain, cost = now, found[-1][1], found[-1][2]
            else:
                calibration, gain, cost = waiting.pop(asked)
            own_gain, own_cost = outcome.gain, outcome.cost
            if own_gain == gain and own_cost == cost:
                average = own = solve(*calibration, even)
            else:
                average = own = solve(*calibration, wanted(gain, cost))
                if own_gain > 0.0 or own_cost > 0.0:
                    own = solve(*calibration, even)
            served.append(average)
            thresholds.append(own)
        return thresholds, served

    def forget(self, before: int) -> None:
        """Forget what was asked about before a number and can no longer be judged."""
        waiting = self._waiting
        while waiting and (first := next(iter(waiting))) < before:
            del waiting[first]

    def _begin(self, found: list[Any]) -> None:
        """Give contexts without a state the one that they begin with: `Hops.begin`."""
        gain = cost = 0.0
        for depth, state in enumerate(found):
            if state is None:
                fresh = self._fresh[min(depth, _LEVELS - 1)]
                found[depth] = (fresh[0], gain, cost, *fresh[3:])
            _, gain, cost, *_ = found[depth]

    def _along(self, chain: tuple[int, ...], found: Sequence[Any]) -> Calibration:
        """Return the calibration at the end of a chain: `Hops.along`."""
        a, b, va, cab, vb = 1.0, 0.0, 0.0, 0.0, 0.0
        for _, _, _, da, db, p1, p2, p3, _, _ in found:
            a, b, va, cab, vb = a + da, b + db, va + p1, cab + p2, vb + p3
        cold, variance = self._cold.get(chain[0], self._first_cold)
        h = 1.0 / (1.0 + found[-1][0] / FAMILIAR)
        return a, b + h * cold, va, cab, vb + h * h * variance

    def _learn(  # one flat loop: a call for each level costs a quarter
        self, chain: tuple[int, ...], found: Sequence[Any], outcome: Outcome, even: float
    ) -> Calibration:
        """Learn at every level, as `Hops.learn`; return `_along` as it was before."""
        policy, states = self._policy, self._states
        slack, alarm, stakes = policy.slack, policy.alarm, policy.stakes
        gain, cost, y = outcome.gain, outcome.cost, 1.0 if outcome.correct else 0.0
        x = logit(outcome.confidence)
        far = _FAR_BELOW if x < 0.0 else _FAR_ABOVE
        if x * even < -far:
            x = -far / clamp(even, -LOGIT_MAX, LOGIT_MAX)
        cold, variance = self._cold.get(chain[0], self._first_cold)
        h = 1.0 / (1.0 + found[-1][0] / FAMILIAR)
        fresh = h * cold
        vb = 0.0
        before, before_b, va, cab, slope, base = 1.0, 0.0, 0.0, 0.0, 1.0, 0.0
        last, last_variance = cold, variance
        depth, alarmed = 0.0, False
        for level, (n, g, c, da, db, p1, p2, p3, up, down) in zip(chain, found, strict=True):
            before += da
            before_b += db
            va += p1
            cab += p2
            vb += p3
            if n % _EVERY == 0.0 and n:
                da, db, p1, p2, p3 = policy._forgotten(depth, da, db, p1, p2, p3)
            if alarmed:
                p1, p2, p3 = policy._doubted(depth, p1, p2, p3)
            z = slope + da
            z = (z if z > _SLOPE_MIN else _SLOPE_MIN) * x + base + db + fresh
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
                p1, p2, p3 = policy._doubted(depth, p1, p2, p3)
            if gain != g:
                g = g + (stakes if gain > 0.0 else 0.0) * (gain - g) if g > 0.0 else gain
            if cost != c:
                c = c + (stakes if cost > 0.0 else 0.0) * (cost - c) if c > 0.0 else cost
            if not depth:
                cold, variance = self._cold[level] = policy._cold(cold, variance, h, error)
                fresh = h * cold
            states[level] = (n + 1.0, g, c, da, db, p1, p2, p3, up, down)
            slope += da
            base += db
            depth += 1.0
        return before, before_b + h * last, va, cab, vb + h * h * last_variance
