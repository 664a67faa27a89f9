"""Detects a user who floods the parent context, and how far to down-weight the user. Pure.

Compares a user's share of a block with the user's earlier share, and the user's rate with the usual
rate of all users together: a user who is alone at night does not flood.
"""

from __future__ import annotations

from math import ceil, exp
from typing import Final, NamedTuple

from learners.context_detectors import DetectorState, Evidence, OutcomeCounts, elapsed

FLOOD: Final = 0.75
"""A flood: at least this share of the parent's outcomes in a block, ..."""
USUAL: Final = 0.25
"""... at most this share before, ..."""
FEWEST: Final = 1_024
"""... of at least this many outcomes of the parent, ..."""
FASTER: Final = 2.0
"""... and at least this many times the usual rate of all users together."""
OVER: Final = 0.5
"""A flood ends at this share of a block."""
PACE: Final = 0.125
"""A flooding user's outcomes count in the contexts above at no more than this share of their usual
rate."""
MOST: Final = 1_024
LASTS_MS: Final = 86_400_000
"""A flood ends after this event time, because by then it may be usual."""


class Flood(NamedTuple):
    """A flood of a user. `until`: end of the down-weighting, event time in Unix ms.

    In the contexts above the user's own, one outcome in `every` counts. 1: the flood is over.
    """

    every: int
    until: int
    evidence: Evidence


def detect_flood(state: DetectorState, seen: OutcomeCounts, gap: float | None) -> Flood | None:
    """Return the flood that a user's block begins or ends, None if neither.

    `gap`: usual logarithm of the ms between two outcomes of the parent, None if unknown. None
    begins if the duration of the block is unknown (`elapsed`).
    """
    n, above = seen.outcomes - state.seen.outcomes, seen.above - state.seen.above
    if not state.seen.above or above < 0:
        return None  # unknown, or the parent was reset
    share = n / max(above, n)  # the parent's counts may lag
    lasts = seen.at < state.flooding
    if lasts and share > OVER:
        return None
    usual = state.seen.outcomes / max(state.seen.above, state.seen.outcomes)
    evidence: Evidence = {"share": share, "usual": usual}
    passed = elapsed(state.seen.at, seen.at)
    dominates = share >= FLOOD and usual <= USUAL and state.seen.above >= FEWEST
    if dominates and passed is not None and gap is not None:
        faster = exp(gap) * n / passed
        if faster >= FASTER:
            every = min(ceil(faster / PACE), MOST)
            return Flood(every, seen.at + LASTS_MS, {**evidence, "faster": faster})
    return Flood(1, seen.at, evidence) if lasts else None
