"""Logistic regression that learns one example at a time, with AdaGrad (Duchi et al. 2011).

Plain Python floats in a fixed order: the same examples give the same weights to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from typing import Any, Final

RATE: Final = 0.3
_FARTHEST: Final = 30.0
"""Bound of the log odds."""


def sigmoid(log_odds: float) -> float:
    """Return the probability of log odds."""
    return 1.0 / (1.0 + exp(-max(-_FARTHEST, min(_FARTHEST, log_odds))))


class OnlineLogistic:
    """Weights of features, learned from soft labels in 0 to 1."""

    def __init__(
        self,
        weights: Sequence[float],
        squares: Sequence[float] | None = None,
        *,
        rate: float = RATE,
        examples: int = 0,
    ) -> None:
        self.weights = list(weights)
        self.squares = [1e-8] * len(self.weights) if squares is None else list(squares)
        self.rate = rate
        self.examples = examples

    def probability(self, features: Sequence[float]) -> float:
        """Return the probability of features."""
        total = 0.0
        for weight, feature in zip(self.weights, features, strict=True):
            total += weight * feature
        return sigmoid(total)

    def learn(self, features: Sequence[float], label: float) -> None:
        """Learn one example by the gradient of the cross entropy."""
        error = self.probability(features) - label
        weights, squares, rate = self.weights, self.squares, self.rate
        for place, feature in enumerate(features):
            if feature:
                step = error * feature
                squares[place] += step * step
                weights[place] -= rate * step / sqrt(squares[place])
        self.examples += 1

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, from which `from_json` makes it again to the bit."""
        return {
            "weights": self.weights, "squares": self.squares, "rate": self.rate,
            "examples": self.examples,
        }  # fmt: skip

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> OnlineLogistic:
        """Return what `to_json` described."""
        return cls(
            state["weights"], state["squares"], rate=state["rate"], examples=state["examples"]
        )
