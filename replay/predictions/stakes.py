"""Gain and cost of a prediction: those that a decision could know, and those it is learned with.

A log often has the gain of hits and the cost of misses only, because both are measured afterwards.
To decide by them would be to know the outcome beforehand. So a decision uses a prediction's own
figures only as the client does, where both are there, and only in workflow types all of whose
outcomes so far have them from the same origin; else the learner's averages of the context decide.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from typing import Final, Generic, TypeVar

import msgspec

from learners.outcome import Outcome
from learners.policy import moving_average
from processing.contexts.vectorized_update import STAKES_RATE
from replay.predictions.assumptions import COST, GAIN, MIXED, AssumedOutcome

Key = TypeVar("Key", bound=Hashable)
UNKNOWN: Final = (0.0, 0.0)
"""Gain and cost with which a policy answers for the averages of the context."""


class StakesHistory(Generic[Key]):
    """Averages and origins of gains and costs so far, by context; `Key` identifies one."""

    def __init__(self) -> None:
        self._gains: dict[Key, float] = {}
        self._costs: dict[Key, float] = {}
        self._origins: dict[Key, int] = {}
        """By workflow type: where gain and cost of all its outcomes so far are from."""

    def known(self, chain: Sequence[Key], outcome: Outcome) -> tuple[float, float]:
        """Return the gain and cost that a decision on this outcome may use; `UNKNOWN`: none."""
        origin = _origin(outcome)
        if origin == MIXED or self._origins.get(workflow_type_of(chain), origin) != origin:
            return UNKNOWN
        return outcome.gain, outcome.cost

    def known_or_average(self, chain: Sequence[Key], outcome: Outcome) -> tuple[float, float]:
        """Return `known`, or the averages of the finest context that has one; 0: there is none."""
        found = self.known(chain, outcome)
        if found != UNKNOWN:
            return found
        return _finest(self._gains, chain), _finest(self._costs, chain)

    def learn(self, chain: Sequence[Key], outcome: Outcome) -> Outcome:
        """Take in an outcome of a chain of contexts, coarse to fine; return what to learn from.

        As live, a missing figure is the average of the finest context that has one, of the
        gains of hits or of the costs of misses.
        """
        kind, origin = workflow_type_of(chain), _origin(outcome)
        if self._origins.setdefault(kind, origin) != origin:
            self._origins[kind] = MIXED
        gain, cost = outcome.gain, outcome.cost
        averages, value = (self._gains, gain) if outcome.correct else (self._costs, cost)
        if gain <= 0.0 or cost <= 0.0:
            outcome = self._filled_in(chain, outcome)
        if value > 0.0:
            for context in chain:
                before = averages.get(context, 0.0)
                if before != value:
                    averages[context] = moving_average(before, value, STAKES_RATE)
        return outcome

    def _filled_in(self, chain: Sequence[Key], outcome: Outcome) -> Outcome:
        gain, cost, assumed = outcome.gain, outcome.cost, _assumed(outcome)
        if gain <= 0.0 and not assumed & GAIN:
            gain = _finest(self._gains, chain)
        if cost <= 0.0 and not assumed & COST:
            cost = _finest(self._costs, chain)
        if gain == outcome.gain and cost == outcome.cost:
            return outcome
        return msgspec.structs.replace(outcome, gain=gain, cost=cost)

    def reset(self, contexts: Set[Key]) -> None:
        """Forget contexts."""
        for found in (self._gains, self._costs, self._origins):
            for key in found.keys() & contexts:
                del found[key]


def workflow_type_of(chain: Sequence[Key]) -> Key:
    """Return the context of a workflow type, which is below the one above all of them."""
    return chain[1] if len(chain) > 1 else chain[0]


def _assumed(outcome: Outcome) -> int:
    return outcome.assumed if isinstance(outcome, AssumedOutcome) else 0


def _origin(outcome: Outcome) -> int:
    """Return where both are from: `GAIN | COST` of an assumption, else recorded; or `MIXED`."""
    assumed = _assumed(outcome)
    gain, cost = outcome.gain > 0.0 or assumed & GAIN, outcome.cost > 0.0 or assumed & COST
    return assumed if gain and cost else MIXED


def _finest(averages: dict[Key, float], chain: Sequence[Key]) -> float:
    return next((averages[key] for key in reversed(chain) if key in averages), 0.0)
