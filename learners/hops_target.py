"""HOPS in target mode: as much speculation as possible at a given share of hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp
from typing import Final

from headstart.calibration import LevelDeviation, logit
from learners.bounds import COUNT, outside
from learners.hops import Hops
from learners.hops_update import calibration
from learners.outcome import Outcome
from learners.policy import (
    SUGGEST_TARGET,
    TARGET,
    HierarchicalPolicy,
    State,
    ThresholdPair,
    same_layout,
    weighted_median_state,
)

_BINS: Final = 40
_LOGITS: Final = tuple(logit((place + 0.5) / _BINS) for place in range(_BINS))


@dataclass(frozen=True)
class HopsTarget(HierarchicalPolicy):
    """For operators who want "85 % of what we start is right".

    The lowest threshold whose predicted precision (the calibrated probability over a histogram of
    40 bins of past confidences) reaches `target`. The calibration is that of `Hops` with a more
    sensitive alarm, which also inflates the slope's variance. State: that of `Hops`, then 40 counts
    of the bins, which decay by `keep`.
    """

    target: float = TARGET
    keep: float = 0.99
    alarm: float = 6.0

    name = "hops_target"
    version = 2

    @cached_property
    def _hops(self) -> Hops:
        return Hops(keep=0.9993, slack=0.05, alarm=self.alarm, slope_kept=0.1)

    def initial(self) -> State:
        """Return the calibration's prior and empty bins."""
        return self._hops.initial() + (0.0,) * _BINS

    def begin(self, parent: State) -> State:
        """Return the prior below `parent`, with the parent's histogram."""
        return self._hops.begin(parent[:-_BINS]) + parent[-_BINS:]

    def below(self, state: State, parent: State) -> State:
        """Return `state` rebased on `parent`."""
        return self._hops.below(state[:-_BINS], parent[:-_BINS]) + state[-_BINS:]

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        judged = Outcome(outcome.confidence, outcome.correct)  # a target ignores gain and cost
        calibrated = self._hops.learn([state[:-_BINS] for state in chain], judged)
        place = min(int(outcome.confidence * _BINS), _BINS - 1)
        learned = []
        for state, own in zip(chain, calibrated, strict=True):
            counts = [self.keep * count for count in state[-_BINS:]]
            counts[place] += 1.0
            learned.append((*own, *counts))
        return learned

    def thresholds(self, state: State) -> ThresholdPair:
        """Return both thresholds; the target of `suggest` is .5."""
        speculate = self._lowest(state, self.target)
        return ThresholdPair(speculate, min(self._lowest(state, SUGGEST_TARGET), speculate))

    def threshold(self, state: State, gain: float, cost: float) -> float:  # noqa: ARG002
        """Return `speculate`, which does not depend on gain and cost."""
        return self._lowest(state, self.target)

    def _lowest(self, state: State, target: float) -> float:
        a, b = calibration(state[:-_BINS])[:2]
        counts = state[-_BINS:]
        seen = right = 0.0
        lowest = 1.0
        for place in range(_BINS - 1, -1, -1):
            z = a * _LOGITS[place] + b
            q = 1.0 / (1.0 + exp(-z)) if z > -700.0 else 0.0
            count = counts[place] + 1e-3
            seen += count
            right += count * q
            if right >= target * seen:
                lowest = place / _BINS
        return lowest

    def deviation(self, state: State) -> LevelDeviation | None:
        """Return the calibration's deviation, for readers that use their own gain and cost."""
        return self._hops.deviation(state[:-_BINS])

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        """Return the pooled calibration, with the histogram of the weighted median state."""
        calibrations = [state[:-_BINS] for state in states]
        bins = weighted_median_state(self, states, weights)[-_BINS:]
        return self._hops.pooled(calibrations, weights) + bins

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state`; also migrate version 1, whose calibration was `Hops` version 1."""
        calibration = self._hops.migrated(version, state[:-_BINS])
        if calibration is None:
            return None
        return same_layout(self, self.version, calibration + state[-_BINS:])

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        counts = outside(state[-_BINS:], (COUNT,) * _BINS)
        return counts or self._hops.flaw(state[:-_BINS])
