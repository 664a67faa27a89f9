"""HOPS over the outcomes of many contexts, for backtests: the arithmetic of `Hops` as a flat loop.

Bit-identical to `Hops` (a law in the tests of replay), in one pass over each chain, and without
values that no later outcome reads. Contexts are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp
from typing import Any, Final

from headstart.calibration import FAMILIAR, LOGIT_MAX, logit, solve, wanted
from learners.hops import Hops
from learners.hops_update import (
    EVERY,
    FAR_ABOVE,
    FAR_BELOW,
    NOISE,
    SLOPE_MIN,
    SURE,
    decay,
    inflate_after_drift,
    update_cold_offset,
)
from learners.outcome import Outcome
from learners.policy import clamp

_LEVELS: Final = 8
"""From this depth on all levels have the same prior."""
_BETWEEN: Final = int(EVERY) - 1
"""Bit mask of a number of outcomes that is 0 when decay is due: `EVERY` is a power of 2, and a mask
is faster than a remainder."""

Step = tuple[tuple[int, ...], Outcome | None, int]
"""A chain of contexts, coarse to fine, with None and a number for a query; or with an outcome and
the number of its query (-1: queried just now)."""
Input = tuple[float, float, float, float, float]
"""Clamped logit of the confidence, truth (0 or 1), logit of the break-even point, gain, cost."""
Known = tuple[float, float, float, float, float, float, float]
"""A calibration (slope, intercept, covariance), and its context's average gain and cost."""
Passed = Iterator[tuple[float, float, float, float, float, float, float, Input]]
"""`Known` at the query of each outcome, and its `Input`."""


class HopsWalk:
    """The states of one `Hops` by context, and the answers to queries without an outcome yet.

    A state here: outcomes (an integer), gain, cost, d (2), P (3), Page-Hinkley (2), as in `Hops`;
    `cold` and its variance are stored by coarsest context. The sums over the levels above are not
    stored, because a chain is always read from its beginning.
    """

    def __init__(self, policy: Hops) -> None:
        self._policy = policy
        self._states: list[Any] = []
        self._waiting: dict[int, Known] = {}
        state = policy.initial()
        self._first_cold = state[11], state[12]
        self._cold: dict[int, tuple[float, float]] = {}
        self._fresh = []
        for _ in range(_LEVELS):
            self._fresh.append(state[4:11])
            state = policy.begin(state)

    def through(
        self, steps: Sequence[Step], contexts: int, known: Sequence[tuple[float, float]]
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Answer queries and learn, in order; return the thresholds in force at each outcome.

        Returns (thresholds for the gain and cost known at the decision, thresholds for its
        context's averages). `contexts`: number of contexts; `known`: gain and cost by outcome, (0,
        0) to use the averages.
        """
        self._states.extend([None] * (contexts - len(self._states)))
        thresholds: list[float] = []
        served: list[float] = []
        passed = zip(self._learned(steps, _inputs(steps)), known, strict=True)
        for (a, b, va, cab, vb, mean_gain, mean_cost, given), (gain, cost) in passed:
            _, _, even, learned_gain, learned_cost = given
            if learned_gain != mean_gain or learned_cost != mean_cost:
                average = solve(a, b, va, cab, vb, wanted(mean_gain, mean_cost))
            else:
                average = solve(a, b, va, cab, vb, even)
            own = average
            if (gain > 0.0 or cost > 0.0) and (gain != mean_gain or cost != mean_cost):
                if gain != learned_gain or cost != learned_cost:
                    even = wanted(gain, cost)
                own = solve(a, b, va, cab, vb, even)
            served.append(average)
            thresholds.append(own)
        return thresholds, served

    def forget(self, before: int) -> None:
        """Delete answers to queries numbered below `before`, which get no outcome any more."""
        waiting = self._waiting
        while waiting and (first := next(iter(waiting))) < before:
            del waiting[first]

    def reset(self, contexts: Sequence[int]) -> None:
        """Delete the states of contexts, which start again from the prior."""
        for context in contexts:
            if context < len(self._states):
                self._states[context] = None
            self._cold.pop(context, None)

    def _begun(self, chain: tuple[int, ...]) -> list[Any]:
        """Return the states of a chain, initial ones (`Hops.begin`) for new contexts."""
        gain = cost = 0.0
        found = []
        for depth, level in enumerate(chain):
            state = self._states[level]
            if state is None:
                state = (0, gain, cost, *self._fresh[min(depth, _LEVELS - 1)])
            gain, cost = state[1:3]
            found.append(state)
        return found

    def _bear(self, chain: tuple[int, ...]) -> Any:
        """Store initial states of a chain's new contexts; return the finest state."""
        for level, state in zip(chain, self._begun(chain), strict=True):
            self._states[level] = state
        return self._states[chain[-1]]

    def _ask(self, chain: tuple[int, ...]) -> Known:
        """Return the calibration at the end of a chain (`Hops.along`)."""
        a, b, va, cab, vb = 1.0, 0.0, 0.0, 0.0, 0.0
        found = self._begun(chain)
        for _, _, _, da, db, p1, p2, p3, _, _ in found:
            a, b, va, cab, vb = a + da, b + db, va + p1, cab + p2, vb + p3
        cold, variance = self._cold.get(chain[0], self._first_cold)
        n, gain, cost = found[-1][:3]
        h = 1.0 / (1.0 + n / FAMILIAR)
        return a, b + h * cold, va, cab, vb + h * h * variance, gain, cost

    def _learned(  # noqa: PLR0912, PLR0915 - one flat loop: a call for each level costs a quarter
        self, steps: Sequence[Step], inputs: Sequence[Input | None]
    ) -> Passed:
        """Learn as `Hops.learn` does; yield what was known at the query of each outcome."""
        policy, states, colds, waiting = self._policy, self._states, self._cold, self._waiting
        slack, alarm, stakes, between = policy.slack, policy.alarm, policy.stakes, _BETWEEN
        least, sure, unsure, noise, first_cold = SLOPE_MIN, SURE, -SURE, NOISE, self._first_cold
        for (chain, _, asked), given in zip(steps, inputs, strict=True):
            if given is None:
                waiting[asked] = self._ask(chain)
                continue
            x, y, _, gain, cost = given
            leaf = states[chain[-1]] or self._bear(chain)
            h = 1.0 / (1.0 + leaf[0] / FAMILIAR)
            cold, variance = colds.get(chain[0], first_cold)
            fresh = cold_before = h * cold
            variance_before = h * h * variance
            a = slope = 1.0
            b = va = cab = vb = base = 0.0
            depth, alarmed = 0, False
            for level in chain:
                # At most three names in an assignment: more are put into a tuple first.
                n, g, c, da, db, p1, p2, p3, up, down = states[level]
                a, b = a + da, b + db
                va, cab, vb = va + p1, cab + p2, vb + p3
                if not n & between and n:
                    da, db, p1, p2, p3 = decay(policy, depth, da, db, p1, p2, p3)
                if alarmed:
                    p1, p2, p3 = inflate_after_drift(policy, depth, p1, p2, p3)
                z = slope + da
                z = (z if z > least else least) * x + base + db + fresh
                error = y - 1.0 / (1.0 + exp(-z if z > unsure else sure))
                v1, v2 = p1 * x + p2, p2 * x + p3
                shrink = 1.0 / (noise + v1 * x + v2)
                step, ratio = noise * error * shrink, v1 * shrink
                da, db = da + v1 * step, db + v2 * step
                p1, p2, p3 = p1 - v1 * ratio, p2 - v2 * ratio, p3 - v2 * v2 * shrink
                up, down = up + (error - slack), down - (error + slack)
                if up < 0.0:
                    up = 0.0
                if down < 0.0:
                    down = 0.0
                if up > alarm or down > alarm:
                    up, down, alarmed = 0.0, 0.0, True
                    p1, p2, p3 = inflate_after_drift(policy, depth, p1, p2, p3)
                if g != gain:
                    g = (g + stakes * (gain - g) if gain > 0.0 else g) if g > 0.0 else gain
                if c != cost:
                    c = (c + stakes * (cost - c) if cost > 0.0 else c) if c > 0.0 else cost
                if not depth:
                    cold, variance = colds[level] = update_cold_offset(
                        policy, cold, variance, h, error
                    )
                    fresh = h * cold
                states[level] = (n + 1, g, c, da, db, p1, p2, p3, up, down)
                slope, base, depth = slope + da, base + db, depth + 1
            if asked < 0:
                yield (a, b + cold_before, va, cab, vb + variance_before, leaf[1], leaf[2], given)
            else:
                yield (*waiting.pop(asked), given)


def _inputs(steps: Sequence[Step]) -> list[Input | None]:
    """Return the features of outcomes as in `Hops.learn`, None for queries."""
    found: list[Input | None] = []
    known_gain = known_cost = even = -1.0
    for _, outcome, _ in steps:
        if outcome is None:
            found.append(None)
            continue
        gain, cost = outcome.gain, outcome.cost
        if gain != known_gain or cost != known_cost:  # consecutive ones are often equal
            known_gain, known_cost, even = gain, cost, wanted(gain, cost)
        x = logit(outcome.confidence)
        far = FAR_BELOW if x < 0.0 else FAR_ABOVE
        if x * even < -far:
            x = -far / clamp(even, -LOGIT_MAX, LOGIT_MAX)
        found.append((x, 1.0 if outcome.correct else 0.0, even, gain, cost))
    return found
