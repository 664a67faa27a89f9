"""What speculating on a prediction is worth, and the best that one threshold could have earned."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from replay.outcomes import Judged

TURN: Final = 0.02
"""Least distance between two turning points of a threshold that count as an oscillation."""


def worth(judged: Judged) -> float:
    """Return what speculating on a prediction earns."""
    outcome = judged.outcome
    return outcome.gain if outcome.correct else -outcome.cost


def best_fixed(predictions: Iterable[tuple[float, float]]) -> float:
    """Return the utility of the best threshold: the best sum from some confidence upwards."""
    total = best = 0.0
    falling = sorted(predictions, reverse=True)
    for _, equals in groupby(falling, key=lambda prediction: prediction[0]):
        total += sum(value for _, value in equals)
        best = max(best, total)
    return best
