"""The interface of policies, their base classes and shared functions.

A policy is pure: the same states and outcome give bit-identical next states. A state is a tuple of
floats of constant length. The contexts of one outcome form a chain, coarse to fine; no level reads
the state of a finer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, Protocol

from headstart.calibration import LevelDeviation
from learners.outcome import Columns, Outcome, Part, Run

State = tuple[float, ...]

START = 0.92
"""The conservative initial threshold (source 000, §3.1)."""
TARGET = 0.85
"""Share of speculations that should be right (source 000: target success rate)."""
SUGGEST_START = 0.70
"""Where `suggest` starts (source 002: suggestions begin at .70)."""
SUGGEST_TARGET = 0.50
"""Share of suggestions that should be right: more often than not (source 002: explicit .50)."""
SUGGEST_MIN = 0.40
"""Lowest threshold of source 002."""


class ThresholdPair(NamedTuple):
    """The least confidences, in [0, 1], at which to start early, and to show a suggestion."""

    speculate: float
    suggest: float


class Policy(Protocol):
    """A learner of thresholds: a frozen value, equal for equal parameters."""

    def __hash__(self) -> int:
        """Return the hash of its parameters."""
        ...

    @property
    def name(self) -> str:
        """Its name in the registry, stored beside its states."""
        ...

    @property
    def version(self) -> int:
        """Version of the state's layout, stored beside it."""
        ...

    def initial(self) -> State:
        """Return the state of the coarsest level before any outcome."""
        ...

    def begin(self, parent: State) -> State:
        """Return the initial state of a new context below `parent`."""
        ...

    def below(self, state: State, parent: State) -> State:
        """Return `state` rebased on `parent`, which may have learned since."""
        ...

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return the states of a chain, coarse to fine, after `outcome`."""
        ...

    def thresholds(self, state: State) -> ThresholdPair:
        """Return a context's thresholds for its own average gain and cost."""
        ...

    def threshold(self, state: State, gain: float, cost: float) -> float:
        """Return `speculate` for one prediction's gain and cost in ms (0 and 0: unknown)."""
        ...

    def deviation(self, state: State) -> LevelDeviation | None:
        """Return the calibration for readers with their own gain and cost; None: there is none."""
        ...

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        """Return the initial state of another context of the coarsest level, a tenant's default.

        `states`: one or more of the coarsest level; `weights`: their weights, above 0.
        """
        ...

    def migrated(self, version: int, state: State) -> State | None:
        """Return a state of this or an earlier version as one of this; None: it is unusable."""
        ...

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        ...


class HierarchicalPolicy:
    """Base of policies whose levels learn together: a finer one uses the coarser ones' states."""

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return the states of a chain, coarse to fine, after `outcome`."""
        raise NotImplementedError

    def learn_run(self, parts: Sequence[Part], run: Columns) -> Sequence[State]:
        """Return the states of contexts after outcomes in order, bit-identical to `learn`.

        `parts`: contexts that learn from any of them, a coarser one before those below it. The
        contexts of one outcome form a chain.
        """
        chains: list[list[int]] = [[] for _ in run.correct]
        for number, part in enumerate(parts):
            for place in part.places:
                chains[place].append(number)
        states = [part.state for part in parts]
        for chain, confidence, correct, gain, cost in zip(chains, *run, strict=True):
            if chain:
                outcome = Outcome(confidence, correct, gain=gain, cost=cost)
                learned = self.learn([states[number] for number in chain], outcome)
                for number, state in zip(chain, learned, strict=True):
                    states[number] = state
        return states


class IndependentPolicy:
    """Base of policies whose levels learn independently; subclasses implement `update`."""

    version: int
    columns = False
    """Whether `update` uses only an outcome's confidence and correctness, so that `course` needs
    only these columns of a run."""

    def initial(self) -> State:
        """Return the state before any outcome."""
        raise NotImplementedError

    def update(self, state: State, outcome: Outcome) -> State:
        """Return one level's state after `outcome`."""
        raise NotImplementedError

    def thresholds(self, state: State) -> ThresholdPair:
        """Return the thresholds of `state`."""
        raise NotImplementedError

    def begin(self, parent: State) -> State:
        """Return the parent's state: a new context begins with its parent's thresholds."""
        return parent

    def below(self, state: State, parent: State) -> State:  # noqa: ARG002
        """Return `state`: it does not depend on its parent."""
        return state

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`."""
        update = self.update
        return [update(state, outcome) for state in chain]

    def course(
        self, state: State, run: Run, *, with_thresholds: bool
    ) -> tuple[State, Sequence[float]]:
        """Return the state after outcomes; if `with_thresholds`, also `speculate` before each."""
        before: list[float] = []
        for outcome in run.outcomes:
            if with_thresholds:
                before.append(self.threshold(state, 0.0, 0.0))
            state = self.update(state, outcome)
        return state, before

    def threshold(self, state: State, gain: float, cost: float) -> float:  # noqa: ARG002
        """Return `speculate`, which does not depend on gain and cost."""
        return self.thresholds(state).speculate

    def deviation(self, state: State) -> LevelDeviation | None:  # noqa: ARG002
        """Return None: there is no calibration."""
        return None

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        """Return the state with the weighted median threshold."""
        return weighted_median_state(self, states, weights)

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state` if this version wrote it."""
        return same_layout(self, version, state)

    def flaw(self, state: State) -> str | None:  # noqa: ARG002
        """Return None: every finite state of this length is valid."""
        return None


def weighted_median_state(policy: Any, states: Sequence[State], weights: Sequence[float]) -> State:
    """Return the state with the weighted median of the thresholds."""
    places = sorted(range(len(states)), key=lambda place: policy.thresholds(states[place]))
    half = 0.5 * sum(weights)
    for place in places:
        half -= weights[place]
        if half <= 0.0:
            return states[place]
    return states[places[-1]]


def same_layout(policy: Any, version: int, state: State) -> State | None:
    """Return `state` if its version, length and values are valid for `policy`, else None."""
    return state if layout_error(policy, version, state) is None else None


def layout_error(policy: Any, version: int, state: State) -> str | None:
    """Return why `state` is not valid for this version of `policy`; None if it is."""
    size = len(policy.initial())
    if version != policy.version or len(state) != size:
        return (
            f"it keeps {size} numbers in version {policy.version}, "
            f"not {len(state)} in version {version}"
        )
    for place, value in enumerate(state):
        if not isfinite(value):
            return f"number {place} is {value}"
    flaw: str | None = policy.flaw(state)
    return flaw


@lru_cache(maxsize=1024)
def spec(policy: Policy) -> str:
    """Return the specification of `policy`: its name and the non-default parameters."""
    standard = type(policy)()
    changed = [
        f"{field.name}={getattr(policy, field.name)!r}"
        for field in fields(policy)  # type: ignore[arg-type]
        if getattr(policy, field.name) != getattr(standard, field.name)
    ]
    return f"{policy.name}:{','.join(changed)}" if changed else policy.name


def clamp(value: float, low: float, high: float) -> float:
    """Return `value` clamped to [low, high]."""
    return low if value < low else high if value > high else value


def moving_average(average: float, value: float, rate: float) -> float:
    """Return a moving average after a value; 0 stands for unknown."""
    if value <= 0.0:
        return average
    return average + rate * (value - average) if average > 0.0 else value
