"""The base of rules that store a threshold and move it by the outcomes at or above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from learners.bounds import THRESHOLD, Bound, outside
from learners.outcome import Outcome, Run
from learners.policy import (
    START,
    SUGGEST_MIN,
    SUGGEST_START,
    SUGGEST_TARGET,
    TARGET,
    IndependentPolicy,
    State,
    ThresholdPair,
)


@dataclass(frozen=True)
class ThresholdRule(IndependentPolicy):
    """Controls a threshold to a share of hits, `target`, and `suggest` to `suggest_target`.

    `speculate` learns from the outcomes at or above itself, `suggest` from those between the two.
    State: the rule's state for `speculate`, then that for `suggest`; each begins with its
    threshold.
    """

    start: float = START
    target: float = TARGET
    min: float = 0.40
    max: float = 0.95
    suggest_start: float = SUGGEST_START
    suggest_target: float = SUGGEST_TARGET
    suggest_min: float = SUGGEST_MIN

    columns = True
    kept: ClassVar[tuple[Bound, ...]] = (THRESHOLD,)
    """Bounds of the state for one threshold."""

    def fresh(self, threshold: float, target: float) -> State:
        """Return the initial state for one threshold."""
        raise NotImplementedError

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the state for one threshold after an outcome; bounds are `low` to `max`."""
        raise NotImplementedError

    def initial(self) -> State:
        """Return the initial states for both thresholds."""
        suggest = min(self.suggest_start, self.start)
        return self.fresh(self.start, self.target) + self.fresh(suggest, self.suggest_target)

    def update(self, state: State, outcome: Outcome) -> State:
        """Return the state after `outcome`; unchanged if its confidence is below both."""
        half = len(state) // 2
        if outcome.confidence >= state[0]:
            return self.step(state[:half], outcome.correct, self.target, self.min) + state[half:]
        if outcome.confidence >= state[half]:
            moved = self.step(state[half:], outcome.correct, self.suggest_target, self.suggest_min)
            return state[:half] + moved
        return state

    def course(
        self, state: State, run: Run, *, with_thresholds: bool
    ) -> tuple[State, Sequence[float]]:
        """Do what `update` does, with the states for both thresholds as separate tuples."""
        half = len(state) // 2
        own, other = state[:half], state[half:]
        threshold, suggest = own[0], other[0]
        step, before = self.step, list[float]()
        for confidence, correct in zip(run.confidence, run.correct, strict=True):
            if with_thresholds:
                before.append(threshold)
            if confidence >= threshold:
                own = step(own, correct, self.target, self.min)
                threshold = own[0]
            elif confidence >= suggest:
                other = step(other, correct, self.suggest_target, self.suggest_min)
                suggest = other[0]
        return own + other, before

    def course_of_speculate(
        self, own: State, run: Run, *, with_thresholds: bool
    ) -> tuple[State, Sequence[float]]:
        """Return the state for `speculate` after outcomes; `with_thresholds`: and it before each.

        It learns only from outcomes at or above itself, so the state for `suggest` is not needed.
        """
        before: list[float] = []
        step, target, low, threshold = self.step, self.target, self.min, own[0]
        for confidence, correct in zip(run.confidence, run.correct, strict=True):
            if with_thresholds:
                before.append(threshold)
            if confidence >= threshold:
                own = step(own, correct, target, low)
                threshold = own[0]
        return own, before

    def thresholds(self, state: State) -> ThresholdPair:
        """Return both thresholds, `suggest` at most `speculate`."""
        speculate, suggest = state[0], state[len(state) // 2]
        return ThresholdPair(speculate, suggest if suggest < speculate else speculate)

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        half = len(state) // 2
        return self._flaw_of(state[:half]) or self._flaw_of(state[half:])

    def _flaw_of(self, own: State) -> str | None:
        """Return why the state for one threshold is invalid, None if it is valid."""
        return outside(own, self.kept)

    def threshold(self, state: State, gain: float, cost: float) -> float:  # noqa: ARG002
        """Return `speculate`, which does not depend on gain and cost."""
        return state[0]
