"""Figures of judged decisions: how often right, how sure, how much can be started."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from replay.evaluation.judged_point import JudgedPoint

BINS: Final = 20
COVERED_AT: Final = 0.85
_LEAST: Final = 1e-4
"""The least probability that the log loss gives to what happened."""

Figures = dict[str, Any]


def figures(points: Sequence[JudgedPoint]) -> Figures:
    """Return the figures of one seed.

    Shares of the decisions at which a call was made: `name_1`, `exact_1` to `exact_3`,
    `covered_at_85`. Of all decisions: `log_loss` (bits), `brier`, `ece`.
    """
    calling = [each for each in points if each.calling]
    return {
        "name_1": share(calling, lambda each: each.named),
        "exact_1": share(calling, lambda each: each.hit),
        "exact_2": share(calling, lambda each: 1 <= each.exact <= 2),
        "exact_3": share(calling, lambda each: 1 <= each.exact <= 3),
        "log_loss": log_loss(points),
        "brier": brier(points),
        "ece": calibration_error(points),
        "covered_at_85": covered(points),
        "first_runs": _part([each for each in calling if not each.repeat]),
        "repeats": _part([each for each in calling if each.repeat]),
        "points": len(points),
        "calling_points": len(calling),
    }


def share(points: Sequence[JudgedPoint], holds: Callable[[JudgedPoint], bool]) -> float | None:
    """Return the share of some points; None where there are none."""
    return sum(map(holds, points)) / len(points) if points else None


def _part(calling: Sequence[JudgedPoint]) -> Figures:
    return {"exact_1": share(calling, lambda each: each.hit), "calling_points": len(calling)}


def log_loss(points: Sequence[JudgedPoint]) -> float | None:
    """Return the mean of -log2 of the probability given to what happened, at least 1e-4."""
    given = (each.confidence if each.hit else 1.0 - each.confidence for each in points)
    total = sum(-math.log2(max(_LEAST, each)) for each in given)
    return total / len(points) if points else None


def brier(points: Sequence[JudgedPoint]) -> float | None:
    """Return the mean squared error of the confidence (Brier 1950)."""
    total = sum((each.confidence - each.hit) ** 2 for each in points)
    return total / len(points) if points else None


def calibration_error(points: Sequence[JudgedPoint]) -> float | None:
    """Return the expected calibration error over equal bins (Naeini et al. 2015)."""
    return (
        sum(abs(each["confidence"] - each["right"]) for each in bins(points)) / len(points)
        if points
        else None
    )


def bins(points: Sequence[JudgedPoint]) -> list[dict[str, float]]:
    """Return of each bin of confidences: decisions, right guesses, and confidence, summed up."""
    found = [{"count": 0, "right": 0.0, "confidence": 0.0} for _ in range(BINS)]
    for each in points:
        own = found[min(BINS - 1, int(each.confidence * BINS))]
        own["count"] += 1
        own["right"] += each.hit
        own["confidence"] += each.confidence
    return found


def covered(points: Sequence[JudgedPoint], precision: float = COVERED_AT) -> float | None:
    """Return the share of calls that are started early by the lowest sufficient threshold.

    That is the lowest, in hindsight, at which a share `precision` of what is started is right.
    """
    calling = sum(each.calling for each in points)
    best = max((right for right, started in _falling(points) if right >= precision * started),
               default=0)  # fmt: skip
    return best / calling if calling else None


def coverage_curve(points: Sequence[JudgedPoint], count: int = 100) -> list[tuple[float, float]]:
    """Return (share of calls started early, precision) by falling threshold, about `count`."""
    calling = max(1, sum(each.calling for each in points))
    curve = [(right / calling, right / started) for right, started in _falling(points)]
    step = max(1, len(curve) // count)
    return curve[step - 1 :: step] + curve[-1:]


def _falling(points: Sequence[JudgedPoint]) -> list[tuple[int, int]]:
    """Return (right, started) at every threshold, the highest first."""
    falling = sorted((each for each in points if each.tool), key=lambda each: -each.confidence)
    found, right, started = [], 0, 0
    for _, equals in groupby(falling, key=lambda each: each.confidence):
        for each in equals:
            right += each.hit
            started += 1
        found.append((right, started))
    return found


def mean_of(several: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the mean of figures over seeds; of a figure that some seed lacks, None."""
    found: Figures = {}
    for key, first in several[0].items():
        values = [each[key] for each in several]
        if isinstance(first, Mapping):
            found[key] = mean_of(values)
        elif any(value is None for value in values):
            found[key] = None
        else:
            total = sum(values) / len(values)
            found[key] = round(total) if isinstance(first, int) else total
    return found
