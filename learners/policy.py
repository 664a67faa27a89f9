"""The interface that every policy keeps, and what they share.

A policy is pure: the same state and outcome give the same next state, to the bit. A state is a
tuple of floats of constant length, so it can be stored and compared anywhere.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from learners.outcome import Outcome

State = tuple[float, ...]

START = 0.92
"""The conservative threshold before anything is known (source 000, §3.1)."""
TARGET = 0.85
"""Share of speculations that should be right (source 000: target success rate)."""
SUGGEST_BELOW = 0.22
"""How far `suggest` lies below `speculate`: the .92 at which source 000 starts to speculate less
the .70 at which source 002 starts to suggest. Until suggestions are learned themselves."""
SUGGEST_MIN = 0.40
"""Lowest threshold of source 002."""


class Thresholds(NamedTuple):
    """The least confidence, in [0, 1], that is worth starting early, and worth showing."""

    speculate: float
    suggest: float


class Policy(Protocol):
    """A learner of thresholds."""

    @property
    def name(self) -> str:
        """The name by which settings and published thresholds call it."""
        ...

    @property
    def version(self) -> int:
        """Version of the state's layout, stored beside it."""
        ...

    def initial(self) -> State:
        """Return the state before any outcome."""
        ...

    def update(self, state: State, outcome: Outcome) -> State:
        """Return the state after `outcome`."""
        ...

    def thresholds(self, state: State) -> Thresholds:
        """Return what `state` answers."""
        ...


def with_suggest(speculate: float) -> Thresholds:
    """Return both thresholds of a policy that learns only `speculate`."""
    return Thresholds(speculate, max(SUGGEST_MIN, speculate - SUGGEST_BELOW))


def clamp(value: float, low: float, high: float) -> float:
    """Return `value` held within [low, high]."""
    return low if value < low else high if value > high else value
