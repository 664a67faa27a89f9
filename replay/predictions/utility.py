"""The worth of starting a prediction, and the most that one fixed threshold could have earned."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, chain, compress
from operator import itemgetter, ne
from typing import Final

from learners.outcome import Outcome
from replay.predictions.assumptions import AssumedOutcome
from replay.predictions.outcomes_file import JudgedOutcome

TURN: Final = 0.02
"""Least distance between two turning points of a threshold that count as an oscillation."""


def worth(judged: JudgedOutcome) -> float:
    """Return what starting a prediction earns, in ms."""
    return worth_of(judged.outcome)


def worth_of(outcome: Outcome) -> float:
    """Return what starting a prediction with this outcome earns, in ms."""
    if isinstance(outcome, AssumedOutcome) and outcome.estimate is not None:
        return outcome.estimate if outcome.correct else -outcome.estimate
    return outcome.gain if outcome.correct else -outcome.cost


def best_fixed(predictions: Iterable[tuple[float, float]]) -> float:
    """Return the utility of the best threshold: the best sum from some confidence upwards.

    `predictions`: confidence and worth of each.
    """
    falling = sorted(predictions, key=itemgetter(0), reverse=True)
    confidences = [confidence for confidence, _ in falling]
    # A threshold cannot separate equal confidences: only the last of them ends a sum.
    ends = map(ne, confidences, chain(confidences[1:], (None,)))
    sums = accumulate(value for _, value in falling)
    return max(0.0, max(compress(sums, ends), default=0.0))
