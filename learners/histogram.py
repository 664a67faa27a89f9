"""Histogram with shrinkage: shares of hits per bin of confidence, shrunk to the parent's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.calibration import LevelDeviation, wanted
from learners.bounds import COUNT, SHARE, STAKES, outside
from learners.outcome import Outcome
from learners.policy import (
    SUGGEST_TARGET,
    HierarchicalPolicy,
    State,
    ThresholdPair,
    same_layout,
    weighted_median_state,
)


@dataclass(frozen=True)
class Histogram(HierarchicalPolicy):
    """Histogram binning (Zadrozny & Elkan 2001), each bin shrunk to the parent's (empirical Bayes).

    q = (hits + strength q_parent) / (count + strength) per bin; the prior of the coarsest level is
    the confidence itself. Counts decay by `keep` per outcome of their bin. The threshold is the
    lower edge of a bin from which on the expected payoff is largest. State: gain, cost (moving
    averages, ms), then `bins` counts, hits, and q of the level above.
    """

    bins: int = 20
    strength: float = 10.0
    keep: float = 0.995
    stakes: float = 0.05

    name = "histogram"
    version = 1

    def initial(self) -> State:
        """Return empty bins whose prior is the confidence itself."""
        middles = [(place + 0.5) / self.bins for place in range(self.bins)]
        return (0.0, 0.0) + (0.0,) * (2 * self.bins) + tuple(middles)

    def begin(self, parent: State) -> State:
        """Return empty bins whose prior are the parent's."""
        return parent[:2] + (0.0,) * (2 * self.bins) + self._shares(parent)

    def below(self, state: State, parent: State) -> State:
        """Return `state` rebased on `parent`."""
        return state[: 2 + 2 * self.bins] + self._shares(parent)

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        bins = self.bins
        place = min(int(outcome.confidence * bins), bins - 1)
        learned: list[State] = []
        for state in chain:
            below = list(self.below(state, learned[-1]) if learned else state)
            for at, value in enumerate((outcome.gain, outcome.cost)):
                if value > 0.0:
                    old = below[at]
                    below[at] = old + self.stakes * (value - old) if old > 0.0 else value
            below[2 + place] = self.keep * below[2 + place] + 1.0
            hits = self.keep * below[2 + bins + place]
            below[2 + bins + place] = hits + (1.0 if outcome.correct else 0.0)
            learned.append(tuple(below))
        return learned

    def _shares(self, state: State) -> State:
        """Return q of every bin."""
        bins, m = self.bins, self.strength
        counts, hits = state[2 : 2 + bins], state[2 + bins : 2 + 2 * bins]
        above = state[2 + 2 * bins :]
        return tuple([(h + m * q) / (n + m) for n, h, q in zip(counts, hits, above, strict=True)])

    def thresholds(self, state: State) -> ThresholdPair:
        """Return `speculate` for the average gain and cost, `suggest` from .5 on."""
        speculate = self.threshold(state, state[0], state[1])
        suggest = self.threshold(state, 1.0 - SUGGEST_TARGET, SUGGEST_TARGET)
        return ThresholdPair(speculate, min(suggest, speculate))

    def threshold(self, state: State, gain: float, cost: float) -> float:
        """Return the edge from which on speculating pays most, 1 if it never pays."""
        if gain <= 0.0 and cost <= 0.0:
            gain, cost = state[:2]
        if gain <= 0.0 and cost <= 0.0:
            gain, cost = 1.0 - 0.85, 0.85
        wanted(gain, cost)  # raises for negative values
        total = best = 0.0
        edge = 1.0
        counts, shares = state[2 : 2 + self.bins], self._shares(state)
        for place in range(self.bins - 1, -1, -1):
            q = shares[place]
            total += (counts[place] + 1.0) * (q * gain - (1.0 - q) * cost)
            if total > best:
                best, edge = total, place / self.bins
        return edge

    def deviation(self, state: State) -> LevelDeviation | None:  # noqa: ARG002
        """Return None: bins have no slope and intercept."""
        return None

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        """Return empty bins below the state with the weighted median threshold."""
        return self.begin(weighted_median_state(self, states, weights))

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state` if this version wrote it."""
        return same_layout(self, version, state)

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        bins = self.bins
        found = outside(state, (*STAKES, *(COUNT,) * (2 * bins), *(SHARE,) * bins))
        pairs = zip(state[2 : 2 + bins], state[2 + bins : 2 + 2 * bins], strict=True)
        if found is None and any(hits > count for count, hits in pairs):
            found = "a bin has more hits than outcomes"
        return found
