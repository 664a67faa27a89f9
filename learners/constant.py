"""Controls: policies that learn nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter
from typing import Final

from learners.outcome import Outcome, Run
from learners.policy import START, SUGGEST_START, IndependentPolicy, State, ThresholdPair

_ABOVE_ALL: Final = nextafter(1.0, 2.0)
"""The next float above 1: no confidence reaches it."""


class _Constant(IndependentPolicy):
    columns = True
    version = 1

    def initial(self) -> State:
        """Return the empty state."""
        return ()

    def update(self, state: State, outcome: Outcome) -> State:  # noqa: ARG002
        """Return `state`."""
        return state

    def course(self, state: State, run: Run, *, told: bool) -> tuple[State, Sequence[float]]:
        """Return `state`, and the one threshold before each outcome if `told`."""
        return state, [self.thresholds(state).speculate] * len(run.confidence) if told else []


@dataclass(frozen=True)
class Fixed(_Constant):
    """The same thresholds for all: .92 (source 000, §3.1) and .70 (source 002) unless said."""

    speculate: float = START
    suggest: float = SUGGEST_START

    name = "fixed"

    def thresholds(self, state: State) -> ThresholdPair:  # noqa: ARG002
        """Return the fixed thresholds; one that is worth starting is worth showing."""
        return ThresholdPair(self.speculate, min(self.suggest, self.speculate))


@dataclass(frozen=True)
class Never(_Constant):
    """Speculates on nothing: its threshold is the next float above 1."""

    name = "never"

    def thresholds(self, state: State) -> ThresholdPair:  # noqa: ARG002
        """Return what no confidence reaches."""
        return ThresholdPair(_ABOVE_ALL, _ABOVE_ALL)


@dataclass(frozen=True)
class Always(_Constant):
    """Speculates on everything."""

    name = "always"

    def thresholds(self, state: State) -> ThresholdPair:  # noqa: ARG002
        """Return 0."""
        return ThresholdPair(0.0, 0.0)
