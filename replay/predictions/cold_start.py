"""Workflow types in a cold start, in which calibrated guesses are believed, as the client does.

The rule itself is `headstart.calibration`'s, so a backtest answers as a reader would have.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from typing import Generic, TypeVar

from headstart.calibration import believes_calibrated, calibrated_threshold
from learners.outcome import Outcome
from learners.policy import Policy
from replay.predictions.stakes import StakesHistory, workflow_type_of

Key = TypeVar("Key", bound=Hashable)


class ColdStart(Generic[Key]):
    """The number of outcomes of each workflow type so far; `Key` identifies a context."""

    def __init__(self) -> None:
        self._outcomes: dict[Key, int] = {}

    def outcomes(self, chain: Sequence[Key]) -> int:
        """Return how many outcomes the workflow type of a chain has had."""
        return self._outcomes.get(workflow_type_of(chain), 0)

    def learn(self, chain: Sequence[Key]) -> None:
        """Count an outcome."""
        key = workflow_type_of(chain)
        self._outcomes[key] = self._outcomes.get(key, 0) + 1

    def reset(self, contexts: Set[Key]) -> None:
        """Forget contexts."""
        for key in self._outcomes.keys() & contexts:
            del self._outcomes[key]


def believed(
    chain: Sequence[Key], outcome: Outcome, outcomes: int, stakes: StakesHistory[Key]
) -> float | None:
    """Return the threshold of a calibrated guess in a cold start; None: the learned one applies.

    `outcomes`: those of its workflow type when the guess was made.
    """
    if outcome.calibrated and believes_calibrated(outcomes, ""):
        return calibrated_threshold(*stakes.known_or_average(chain, outcome))
    return None


def believing(policy: Policy) -> bool:
    """Return whether a policy's thresholds give way to calibrated guesses in a cold start."""
    return believes_calibrated(0, policy.name)
