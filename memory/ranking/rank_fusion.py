"""Fuses rankings into one, by the search and by what replays it in memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_RANK_OFFSET: Final = 60
"""As in the paper; between 20 and 100 it hardly matters."""


def fuse_ranks(rankings: Iterable[Sequence[int]]) -> dict[int, float]:
    """Return each id's sum of 1 / (60 + rank) over rankings, best first.

    Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009). Equal sums: smaller id first.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, each in enumerate(ranking, 1):
            scores[each] = scores.get(each, 0.0) + 1 / (_RANK_OFFSET + rank)
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
