"""META: Hedge over four whole policies at every level, for data that may fit none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import exp
from typing import Final

from headstart.calibration import TARGET, LevelDeviation
from learners.bounds import SUM, outside
from learners.conformal import Aci
from learners.hedge_grid import Grid
from learners.histogram import Histogram
from learners.hops import Hops
from learners.outcome import Outcome
from learners.policy import HierarchicalPolicy, Policy, State, ThresholdPair, same_layout

_EXPERTS: Final[tuple[Policy, ...]] = (Hops(), Histogram(), Grid(), Aci())
_PLACES: Final = tuple(
    pairwise(accumulate((len(expert.initial()) for expert in _EXPERTS), initial=0))
)
_COUNT: Final = len(_EXPERTS)


@dataclass(frozen=True)
class Meta(HierarchicalPolicy):
    """Hedge (Freund & Schapire 1997) over HOPS, histogram, grid and ACI.

    Every expert is evaluated on each outcome before it learns from it. One that would have
    speculated gains 1 - r on a hit and loses r on a miss, r = cost / (cost + gain); its log-weight
    grows by eta times that and decays by `keep`. The threshold is the weighted median of the
    experts' thresholds. HOPS begins with `head_start` more log-weight than the others. State: the
    concatenated states of the experts, then their log-weights.
    """

    eta: float = 0.3
    keep: float = 0.99
    head_start: float = 1.0

    name = "meta"
    version = 2

    def initial(self) -> State:
        """Return every expert's initial state, and the weights."""
        states = [value for expert in _EXPERTS for value in expert.initial()]
        return (*states, self.head_start, *(0.0,) * (_COUNT - 1))

    def begin(self, parent: State) -> State:
        """Return every expert's state of a new context, with the parent's weights."""
        pairs = zip(_EXPERTS, _parts(parent), strict=True)
        states = [value for expert, part in pairs for value in expert.begin(part)]
        return (*states, *parent[-_COUNT:])

    def below(self, state: State, parent: State) -> State:
        """Return `state` with every expert's state rebased on `parent`."""
        parts = zip(_EXPERTS, _parts(state), _parts(parent), strict=True)
        states = [value for expert, own, above in parts for value in expert.below(own, above)]
        return (*states, *state[-_COUNT:])

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        """Return every level's state after `outcome`, coarse to fine."""
        parts = [_parts(state) for state in chain]
        columns = [
            expert.learn([each[place] for each in parts], outcome)
            for place, expert in enumerate(_EXPERTS)
        ]
        return [
            (*(value for column in columns for value in column[level]), *weights)
            for level, weights in enumerate(
                self._weighed(state, part, outcome)
                for state, part in zip(chain, parts, strict=True)
            )
        ]

    def _weighed(self, state: State, parts: Sequence[State], outcome: Outcome) -> list[float]:
        stakes = outcome.gain + outcome.cost
        r = outcome.cost / stakes if stakes > 0.0 else TARGET
        won = self.eta * ((1.0 if outcome.correct else 0.0) - r)
        weights = []
        for expert, part, weight in zip(_EXPERTS, parts, state[-_COUNT:], strict=True):
            started = outcome.confidence >= expert.threshold(part, outcome.gain, outcome.cost)
            weights.append(self.keep * weight + (won if started else 0.0))
        return weights

    def thresholds(self, state: State) -> ThresholdPair:
        """Return the weighted medians of the experts' thresholds."""
        parts = zip(_EXPERTS, _parts(state), strict=True)
        answers = [expert.thresholds(part) for expert, part in parts]
        logs = state[-_COUNT:]
        speculate = _median([answer.speculate for answer in answers], logs)
        return ThresholdPair(speculate, min(_median([a.suggest for a in answers], logs), speculate))

    def threshold(self, state: State, gain: float, cost: float) -> float:
        """Return the weighted median of the experts' thresholds for this gain and cost."""
        parts = zip(_EXPERTS, _parts(state), strict=True)
        answers = [expert.threshold(part, gain, cost) for expert, part in parts]
        return _median(answers, state[-_COUNT:])

    def deviation(self, state: State) -> LevelDeviation | None:  # noqa: ARG002
        """Return None: a vote of experts is not a calibration."""
        return None

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        """Return each expert's pooled state, with the mean log-weights."""
        columns = zip(*map(_parts, states), strict=True)
        experts = zip(_EXPERTS, columns, strict=True)
        values = [value for expert, own in experts for value in expert.pooled(own, weights)]
        total = sum(weights)
        logs = zip(*(state[-_COUNT:] for state in states), strict=True)
        means = [sum(w * log for w, log in zip(weights, each, strict=True)) for each in logs]
        return (*values, *(mean / total for mean in means))

    def migrated(self, version: int, state: State) -> State | None:
        """Return `state`; also migrate version 1, whose first expert was `Hops` version 1."""
        calibration = _EXPERTS[0].migrated(version, state[: _PLACES[0][1]])
        if calibration is None:
            return None
        return same_layout(self, self.version, calibration + state[_PLACES[0][1] :])

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        for expert, part in zip(_EXPERTS, _parts(state), strict=True):
            if (found := expert.flaw(part)) is not None:
                return f"{expert.name}: {found}"
        return outside(state[-_COUNT:], (SUM,) * _COUNT)


def _parts(state: State) -> list[State]:
    return [state[begin:end] for begin, end in _PLACES]


def _median(values: Sequence[float], logs: Sequence[float]) -> float:
    highest = max(logs)
    pairs = sorted((value, exp(log - highest)) for value, log in zip(values, logs, strict=True))
    half = 0.5 * sum(weight for _, weight in pairs)
    for value, weight in pairs:
        half -= weight
        if half <= 0.0:
            return value
    return pairs[-1][0]
