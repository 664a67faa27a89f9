"""One user who floods the context above their own: told apart by counts, and how far to weigh down.

Pure. A user's share of a block is held against their share of all that came before, and their pace
against everybody's usual one: one user who is left alone at night does not flood.
"""

from __future__ import annotations

from math import ceil, exp
from typing import Final, NamedTuple

from learners.context_detectors import DetectorState, Evidence, OutcomeCounts, elapsed

FLOOD: Final = 0.75
"""Of the outcomes above, so much in a block is a flood, where ..."""
USUAL: Final = 0.25
"""... it was no more than this of all before, in ..."""
FEWEST: Final = 1_024
"""... no fewer outcomes, and where ..."""
FASTER: Final = 2.0
"""... the user alone is so many times as fast as everybody usually is."""
OVER: Final = 0.5
"""With so little of a block the flood is over."""
PACE: Final = 0.125
"""A user who floods teaches the contexts above at no more than this share of their usual pace."""
MOST: Final = 1_024
LASTS_MS: Final = 86_400_000
"""A flood is looked at anew after so much event time: by then it may be what is usual."""


class Flood(NamedTuple):
    """What is to be told of a user. `until`: event time to which they are weighed down, Unix ms.

    Above the user's own context one outcome in `every` counts. 1: the flood is over.
    """

    every: int
    until: int
    evidence: Evidence


def detect_flood(state: DetectorState, seen: OutcomeCounts, gap: float | None) -> Flood | None:
    """Return the flood that a user's block begins or ends; None where it does neither.

    `gap`: the usual logarithm of the ms between two outcomes above, None where it is not known.
    Where the time that a block took is not known (`elapsed`), none begins.
    """
    n, above = seen.outcomes - state.seen.outcomes, seen.above - state.seen.above
    if not state.seen.above or above < 0:
        return None  # not known, or those above began anew
    share = n / max(above, n)  # what is known of those above may be behind
    lasts = seen.at < state.flooding
    if lasts and share > OVER:
        return None
    usual = state.seen.outcomes / max(state.seen.above, state.seen.outcomes)
    evidence: Evidence = {"share": share, "usual": usual}
    passed = elapsed(state.seen.at, seen.at)
    drowns = share >= FLOOD and usual <= USUAL and state.seen.above >= FEWEST
    if drowns and passed is not None and gap is not None:
        faster = exp(gap) * n / passed
        if faster >= FASTER:
            every = min(ceil(faster / PACE), MOST)
            return Flood(every, seen.at + LASTS_MS, {**evidence, "faster": faster})
    return Flood(1, seen.at, evidence) if lasts else None
