"""The input of learners: one outcome of a prediction, or several in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

_LARGEST = 1e15  # milliseconds; also what keeps sums of squares finite


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """One prediction whose truth is known, speculated on or not (full feedback).

    `confidence` in [0, 1]; `gain` (latency that a hit saves) and `cost` (what a miss wastes) in
    ms, 0 if unknown; `timestamp` of the completion in Unix ms. `not_startable`: why the call could
    not have been started at any threshold ("": it could); policies learn from it, but it has no
    payoff. `calibrated`: its executor declares its confidence calibrated; no policy reads this,
    backtests do.
    """

    confidence: float
    correct: bool
    speculated: bool = False
    gain: float = 0.0
    cost: float = 0.0
    execution_ms: float = 0.0
    mode: str = "speculative"
    timestamp: int = 0
    not_startable: str = ""
    calibrated: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for invalid numbers; NaN fails every comparison."""
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence must be in [0, 1], not {self.confidence!r}")
        if not (0.0 <= self.gain <= _LARGEST and 0.0 <= self.cost <= _LARGEST):
            raise ValueError(
                f"gain and cost must be 0 to {_LARGEST:g} ms, not {self.gain!r} and {self.cost!r}"
            )


class Run(NamedTuple):
    """Outcomes of one context in order, and the fields that most policies use, as columns."""

    outcomes: Sequence[Outcome]
    confidence: Sequence[float]
    correct: Sequence[bool]

    def piece(self, begin: int, end: int) -> Run:
        """Return the outcomes at `begin` to `end`, exclusive."""
        return Run(self.outcomes[begin:end], self.confidence[begin:end], self.correct[begin:end])


class Columns(NamedTuple):
    """Outcomes in order, as the columns that `HierarchicalPolicy` uses."""

    confidence: Sequence[float]
    correct: Sequence[bool]
    gain: Sequence[float]
    cost: Sequence[float]


class Part(NamedTuple):
    """A context of a run: its state before, and the sorted positions of its outcomes, not empty."""

    state: tuple[float, ...]
    places: Sequence[int]
