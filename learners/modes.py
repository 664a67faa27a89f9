"""The three modes (sources 000 and 002), speculate, suggest or ask, and their error rates."""

from __future__ import annotations

from typing import Final, NamedTuple

from learners.policy import State

SPECULATIVE: Final = "speculative"
SUGGESTION: Final = "suggestion"
EXPLICIT: Final = "explicit"
MODES: Final = (EXPLICIT, SUGGESTION, SPECULATIVE)


class Rates(NamedTuple):
    """Error rates of a mode.

    `fp`, false positives: share of misses among speculated or suggested predictions; None for
    `explicit`. `fn`, false negatives: share of hits among suggested or asked predictions, which
    deserved the next bolder mode; None for `speculative`.
    """

    outcomes: float
    fp: float | None
    fn: float | None


def rates(counts: State) -> dict[str, Rates]:
    """Return the rates of each mode from (count, hits) of each of `MODES`.

    Both are None if it never occurred.
    """
    found = {}
    for place, mode in enumerate(MODES):
        count, hits = counts[2 * place : 2 * place + 2] if counts else (0.0, 0.0)
        share = hits / count if count else None
        fp = None if share is None or mode == EXPLICIT else 1.0 - share
        found[mode] = Rates(count, fp, None if mode == SPECULATIVE else share)
    return found
