"""Policies that each break a law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from learners.hops import Hops
from learners.outcome import Outcome
from learners.policy import State, ThresholdPair
from learners.td import Td

HITS: Final = [Outcome(0.95, True)] * 60
MIXED: Final = [Outcome(0.95, n % 3 > 0) for n in range(60)]
_CALLS = count()


@dataclass(frozen=True)
class Upward(Td):
    """Rises by hits."""

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        return super().step(own, not correct, target, low)


@dataclass(frozen=True)
class Unbounded(Td):
    """Answers above 1."""

    def thresholds(self, state: State) -> ThresholdPair:
        return ThresholdPair(state[0] + 1.0, state[0])


@dataclass(frozen=True)
class Crossed(Td):
    """Shows less than it starts."""

    def thresholds(self, state: State) -> ThresholdPair:
        return ThresholdPair(state[0], 0.99)


@dataclass(frozen=True)
class Impure(Td):
    """Remembers how often it was asked."""

    def update(self, state: State, outcome: Outcome) -> State:
        after = super().update(state, outcome)
        return (after[0] - 1e-9 * next(_CALLS), *after[1:])


@dataclass(frozen=True)
class Growing(Td):
    """Keeps every outcome."""

    def update(self, state: State, outcome: Outcome) -> State:
        return (*super().update(state[:4], outcome), *state[4:], 1.0)


@dataclass(frozen=True)
class Whole(Td):
    """Counts in integers, which no row keeps apart from floats."""

    def update(self, state: State, outcome: Outcome) -> State:
        after = super().update(state, outcome)
        return (*after[:-1], int(outcome.correct))


@dataclass(frozen=True)
class Credulous(Td):
    """Takes any state for its own."""

    def migrated(self, version: int, state: State) -> State | None:
        return state


@dataclass(frozen=True)
class Upside(Td):
    """A coarse level reads a finer one."""

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        first, *rest = super().learn(chain, outcome)
        return [(first[0], 0.5 * (first[1] + chain[-1][1]), *first[2:]), *rest]


@dataclass(frozen=True)
class Deaf(Td):
    """Learns nothing."""

    def update(self, state: State, outcome: Outcome) -> State:
        return state


@dataclass(frozen=True)
class Contrary(Hops):
    """A calibration that takes hits for misses."""

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        hit = not outcome.correct
        flipped = Outcome(outcome.confidence, hit, False, outcome.gain, outcome.cost)
        return super().learn(chain, flipped)


@dataclass(frozen=True)
class Orphan(Td):
    """A context never seen answers otherwise than its parent."""

    def begin(self, parent: State) -> State:
        return (0.5, *parent[1:])


@dataclass(frozen=True)
class Homeless(Td):
    """Pools states to none of its own."""

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        return (*states[0], 0.0)
