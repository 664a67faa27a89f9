"""Control policies, which learn nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nextafter
from typing import Final

from learners.outcome import Outcome, Run
from learners.policy import START, SUGGEST_START, IndependentPolicy, State, ThresholdPair

_ABOVE_ALL: Final = nextafter(1.0, 2.0)
"""The next float above 1, above every confidence."""


class _Constant(IndependentPolicy):
    columns = True
    version = 1

    def initial(self) -> State:
        """Return the empty state."""
        return ()

    def update(self, state: State, outcome: Outcome) -> State:  # noqa: ARG002
        """Return `state`."""
        return state

    def course(
        self, state: State, run: Run, *, with_thresholds: bool
    ) -> tuple[State, Sequence[float]]:
        """Return `state`, and the constant threshold for each outcome if `with_thresholds`."""
        return state, [self.thresholds(state).speculate] * len(
            run.confidence
        ) if with_thresholds else []


@dataclass(frozen=True)
class Fixed(_Constant):
    """Fixed thresholds, by default .92 (source 000, §3.1) and .70 (source 002)."""

    speculate: float = START
    suggest: float = SUGGEST_START

    name = "fixed"

    def thresholds(self, state: State) -> ThresholdPair:  # noqa: ARG002
        """Return the fixed thresholds, `suggest` at most `speculate`."""
        return ThresholdPair(self.speculate, min(self.suggest, self.speculate))


@dataclass(frozen=True)
class Never(_Constant):
    """Never speculates: its threshold is the next float above 1."""

    name = "never"

    def thresholds(self, state: State) -> ThresholdPair:  # noqa: ARG002
        """Return thresholds above every confidence."""
        return ThresholdPair(_ABOVE_ALL, _ABOVE_ALL)


@dataclass(frozen=True)
class Always(_Constant):
    """Always speculates."""

    name = "always"

    def thresholds(self, state: State) -> ThresholdPair:  # noqa: ARG002
        """Return 0."""
        return ThresholdPair(0.0, 0.0)
