"""Whether the best policy would still be the best if estimated gains and costs were others.

Every estimate may be half or twice as large, those of gains and those of costs each on their own. A
guess without an estimate counts as 0 ms; it may be worth up to twice the mean of what is recorded,
and any time where nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

FACTORS: Final = (0.5, 2.0)
"""By how much an estimate may be wrong."""


class UnsureSums(NamedTuple):
    """What one policy started of estimated worth (ms), and how many guesses of unknown worth."""

    estimated_saved: float = 0.0
    estimated_wasted: float = 0.0
    unpriced_hits: float = 0.0
    unpriced_misses: float = 0.0

    @classmethod
    def of(cls, parts: Sequence[Sequence[float]]) -> UnsureSums:
        """Return the sums over the parts of several units."""
        return cls(*map(sum, zip(*parts, strict=True))) if parts else cls()


def least_lead(found: Mapping[str, Any], name: str, other: str) -> float:
    """Return by how much (ms) a policy earns more than another at the least.

    Minus infinity where nothing limits it. A policy that was not run is one that starts nothing.
    """
    one, two = _figures(found, name), _figures(found, other)
    saved = one["estimated_saved"] - two["estimated_saved"]
    wasted = one["estimated_wasted"] - two["estimated_wasted"]
    lead: float = one["utility"] - two["utility"] - saved + wasted
    lead += min(factor * saved for factor in FACTORS)
    lead += min(-factor * wasted for factor in FACTORS)
    hits = one["unpriced_hits"] - two["unpriced_hits"]
    misses = one["unpriced_misses"] - two["unpriced_misses"]
    gain, cost = _limits(found)
    if hits < 0.0:
        lead += hits * gain
    if misses > 0.0:
        lead -= misses * cost
    return lead


def may_lead(found: Mapping[str, Any]) -> list[str]:
    """Return the policies that may have earned more than the one that earned most, in order."""
    winner = found["winner"]
    if winner is None:
        return []
    others = list(dict.fromkeys([*found["policies"], found["against"]]))
    slack = 1e-9 * (1.0 + abs(found["policies"][winner]["utility"]))
    return [each for each in others if each != winner and least_lead(found, winner, each) < -slack]


def undecided(found: Mapping[str, Any]) -> str | None:
    """Return why it is unknown which policy earned most; None if it is known."""
    winner = found["winner"]
    if winner is None:
        return None
    rivals = [each for each in may_lead(found) if least_lead(found, winner, each) == -inf]
    if not rivals:
        return None
    misses = found["unpriced_misses"]
    hits = found["unpriced"] - misses
    of = _figures(found, winner)
    if misses and of["unpriced_misses"] > min(
        _figures(found, n)["unpriced_misses"] for n in rivals
    ):
        return (
            f"It is unknown which policy earned most: no cost is recorded for {misses:,} wrong "
            "guesses, nor for any other that would give an estimate, and a policy that starts more "
            "of them would seem better than it is"
        )
    return (
        f"It is unknown which policy earned most: no gain is recorded for {hits:,} right "
        "guesses, nor for any other that would give an estimate, and a policy that starts more of "
        "them would seem worse than it is"
    )


def _figures(found: Mapping[str, Any], name: str) -> Mapping[str, float]:
    nothing = {"utility": 0.0, **UnsureSums()._asdict()}
    figures: Mapping[str, float] = found["policies"].get(name, nothing)
    return figures


def _limits(found: Mapping[str, Any]) -> tuple[float, float]:
    """Return the most (ms) that a hit without a gain may save, and a miss without a cost waste."""
    bins, misses = found["bins"], found["unpriced_misses"]
    hits = found["unpriced"] - misses
    right, count = sum(each["right"] for each in bins), sum(each["count"] for each in bins)
    gain, cost = sum(each["gain"] for each in bins), sum(each["cost"] for each in bins)
    return _limit(gain, right - hits), _limit(cost, count - right - misses)


def _limit(total: float, count: int) -> float:
    return FACTORS[1] * total / max(1, count) if total > 0.0 else inf
