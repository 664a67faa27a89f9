"""The interface that every policy keeps, and what they share.

A policy is pure: the same states and outcome give the same next states, to the bit. A state is a
tuple of floats of constant length, so it can be stored and compared anywhere. The contexts of one
outcome form a chain, coarse to fine; no level reads the state of a finer one.
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
"""The conservative threshold before anything is known (source 000, §3.1)."""
TARGET = 0.85
"""Share of speculations that should be right (source 000: target success rate)."""
SUGGEST_START = 0.70
"""Where `suggest` starts (source 002: suggestions begin at .70)."""
SUGGEST_TARGET = 0.50
"""Share of suggestions that should be right: more often than not (source 002: explicit .50)."""
SUGGEST_MIN = 0.40
"""Lowest threshold of source 002."""


class ThresholdPair(NamedTuple):
    """The least confidence, in [0, 1], that is worth starting early, and worth showing."""

    speculate: float
    suggest: float


class Policy(Protocol):
    """A learner of thresholds: a frozen value, the same for the same parameters."""

    def __hash__(self) -> int:
        """Return the hash of its parameters."""
        ...

    @property
    def name(self) -> str:
        """The family by which the registry calls it and that its stored states name."""
        ...

    @property
    def version(self) -> int:
        """Version of the state's layout, stored beside it."""
        ...

    def initial(self) -> State:
        """Return the state of the coarsest level before any outcome."""
        ...

    def begin(self, parent: State) -> State:
        """Return the state of a context never seen, below `parent`."""
        ...

    def below(self, state: State, parent: State) -> State:
        """Return `state` as it reads under `parent`, which may have learned since."""
        ...

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return the states of a chain, coarse to fine, after `outcome`."""
        ...

    def thresholds(self, state: State) -> ThresholdPair:
        """Return what a context answers for its own average gain and cost."""
        ...

    def threshold(self, state: State, gain: float, cost: float) -> float:
        """Return `speculate` for one prediction's gain and cost, in ms (0 and 0: not known)."""
        ...

    def deviation(self, state: State) -> LevelDeviation | None:
        """Return what a reader needs for thresholds of its own; None: this holds a threshold."""
        ...

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        """Return the state in which a coarsest context begins that is one more of its kind.

        `states`: one or more of the coarsest level; `weights`: how much each counts, above 0.
        """
        ...

    def migrated(self, version: int, state: State) -> State | None:
        """Return the state that an earlier (or this) version stored; None: it says nothing."""
        ...

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length cannot be of this policy; None: it can be."""
        ...


class HierarchicalPolicy:
    """Base of policies whose levels learn together, a finer one from what a coarser one knows."""

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return the states of a chain, coarse to fine, after `outcome`."""
        raise NotImplementedError

    def learn_run(self, parts: Sequence[Part], run: Columns) -> Sequence[State]:
        """Return the states of contexts after outcomes in order: to the bit what `learn` gives.

        `parts`: contexts that learn from any of them, a coarser one before those below it. The
        contexts of one outcome are a chain.
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
    """Base of policies whose levels learn each on its own; what they need is `update`."""

    version: int
    columns = False
    """Whether `update` reads of an outcome only its confidence and whether it was right, so that
    `course` needs no more than these columns of a run."""

    def initial(self) -> State:
        """Return the state before any outcome."""
        raise NotImplementedError

    def update(self, state: State, outcome: Outcome) -> State:
        """Return one level's state after `outcome`."""
        raise NotImplementedError

    def thresholds(self, state: State) -> ThresholdPair:
        """Return what `state` answers."""
        raise NotImplementedError

    def begin(self, parent: State) -> State:
        """Return the parent's own state: a context never seen answers as its parent does."""
        return parent

    def below(self, state: State, parent: State) -> State:  # noqa: ARG002
        """Return `state`: it does not depend on its parent."""
        return state

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`."""
        update = self.update
        return [update(state, outcome) for state in chain]

    def course(self, state: State, run: Run, *, told: bool) -> tuple[State, Sequence[float]]:
        """Return the state after outcomes in order, and `speculate` before each if `told`."""
        before: list[float] = []
        for outcome in run.outcomes:
            if told:
                before.append(self.threshold(state, 0.0, 0.0))
            state = self.update(state, outcome)
        return state, before

    def threshold(self, state: State, gain: float, cost: float) -> float:  # noqa: ARG002
        """Return `speculate`: the rule knows nothing of gain and cost."""
        return self.thresholds(state).speculate

    def deviation(self, state: State) -> LevelDeviation | None:  # noqa: ARG002
        """Return None: no calibration is held."""
        return None

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        """Return the state whose answer lies in the middle of all."""
        return weighted_median_state(self, states, weights)

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state` if this version wrote it."""
        return same_layout(self, version, state)

    def flaw(self, state: State) -> str | None:  # noqa: ARG002
        """Return why a finite state of this length cannot be of this policy; None: it can be."""
        return None


def weighted_median_state(policy: Any, states: Sequence[State], weights: Sequence[float]) -> State:
    """Return the state whose `speculate` is the weighted median of all."""
    places = sorted(range(len(states)), key=lambda place: policy.thresholds(states[place]))
    half = 0.5 * sum(weights)
    for place in places:
        half -= weights[place]
        if half <= 0.0:
            return states[place]
    return states[places[-1]]


def same_layout(policy: Any, version: int, state: State) -> State | None:
    """Return `state` where version, length and values are what `policy` keeps."""
    return state if layout_error(policy, version, state) is None else None


def layout_error(policy: Any, version: int, state: State) -> str | None:
    """Return why `state` is none that this version of `policy` keeps; None where it is one."""
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
    """Return what the registry reads back as `policy`: its name and what is not the default."""
    standard = type(policy)()
    changed = [
        f"{field.name}={getattr(policy, field.name)!r}"
        for field in fields(policy)  # type: ignore[arg-type]
        if getattr(policy, field.name) != getattr(standard, field.name)
    ]
    return f"{policy.name}:{','.join(changed)}" if changed else policy.name


def clamp(value: float, low: float, high: float) -> float:
    """Return `value` held within [low, high]."""
    return low if value < low else high if value > high else value


def moving_average(average: float, value: float, rate: float) -> float:
    """Return a moving average of what is known after a value; 0 is not known."""
    if value <= 0.0:
        return average
    return average + rate * (value - average) if average > 0.0 else value
