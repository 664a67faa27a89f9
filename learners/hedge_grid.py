"""Hedge over a grid of thresholds: each is an expert, evaluated on every outcome."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp

from headstart.calibration import TARGET
from learners.bounds import SUM, outside
from learners.outcome import Outcome
from learners.policy import SUGGEST_TARGET, IndependentPolicy, State, ThresholdPair


@dataclass(frozen=True)
class Grid(IndependentPolicy):
    """Hedge (Freund & Schapire 1997) over `size` thresholds from `low` to `high`.

    Full feedback: every threshold's loss is known at every outcome, speculated on or not. With
    r = cost / (cost + gain) (.85 if both are unknown), one that speculates gains (1 - r) on a hit
    and loses r on a miss. Log-weights grow by eta times that and decay by `keep`. The threshold is
    the weighted median, so it decides as the majority of the weight would. `suggest` is the same
    for r = .5. State: `size` log-weights of `speculate`, then of `suggest`.
    """

    size: int = 41
    low: float = 0.0
    high: float = 1.0
    eta: float = 0.5
    keep: float = 0.999

    name = "hedge"
    version = 1

    @cached_property
    def _grid(self) -> tuple[float, ...]:
        step = (self.high - self.low) / (self.size - 1)
        return tuple(self.low + step * place for place in range(self.size))

    def initial(self) -> State:
        """Return equal weights."""
        return (0.0,) * (2 * self.size)

    def update(self, state: State, outcome: Outcome) -> State:
        """Return the state after `outcome`."""
        stakes = outcome.gain + outcome.cost
        r = outcome.cost / stakes if stakes > 0.0 else TARGET
        p, size, keep = outcome.confidence, self.size, self.keep
        won = self.eta * ((1.0 if outcome.correct else 0.0) - r)
        shown = self.eta * ((1.0 if outcome.correct else 0.0) - SUGGEST_TARGET)
        above = sum(1 for threshold in self._grid if threshold <= p)
        learned = [keep * weight for weight in state]
        for place in range(above):
            learned[place] += won
            learned[size + place] += shown
        return tuple(learned)

    def thresholds(self, state: State) -> ThresholdPair:
        """Return both weighted medians."""
        speculate, suggest = self._median(state[: self.size]), self._median(state[self.size :])
        return ThresholdPair(speculate, min(suggest, speculate))

    def threshold(self, state: State, gain: float, cost: float) -> float:  # noqa: ARG002
        """Return the weighted median, which follows from past gains and costs."""
        return self._median(state[: self.size])

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        return outside(state, (SUM,) * len(state))

    def _median(self, logs: State) -> float:
        highest = max(logs)
        weights = [exp(each - highest) for each in logs]
        half = 0.5 * sum(weights)
        for threshold, weight in zip(self._grid, weights, strict=True):
            half -= weight
            if half <= 0.0:
                return threshold
        return self._grid[-1]
