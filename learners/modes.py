"""Three answers (sources 000 and 002): speculate, suggest or ask, and how often each is wrong.

Not here: how the two thresholds are learned (each policy's own affair), and who counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from learners.policy import State

SPECULATIVE: Final = "speculative"
SUGGESTION: Final = "suggestion"
EXPLICIT: Final = "explicit"
MODES: Final = (EXPLICIT, SUGGESTION, SPECULATIVE)


class Rates(NamedTuple):
    """How a mode does: share of misses among what was acted on (`fp`), of hits missed (`fn`).

    `fp`, false positives: of what was speculated on or suggested, the share that was wrong; None
    for `explicit`, where nothing was done. `fn`, false negatives: of what was suggested or asked,
    the share that was right and so deserved the next bolder answer; None for `speculative`.
    """

    outcomes: float
    fp: float | None
    fn: float | None


def rates(counts: State) -> dict[str, Rates]:
    """Return the rates of each mode from (count, hits) of each of `MODES`.

    Both are None where it never occurred.
    """
    found = {}
    for place, mode in enumerate(MODES):
        count, hits = counts[2 * place : 2 * place + 2] if counts else (0.0, 0.0)
        share = hits / count if count else None
        fp = None if share is None or mode == EXPLICIT else 1.0 - share
        found[mode] = Rates(count, fp, None if mode == SPECULATIVE else share)
    return found
