"""Ages, weighs and diversifies ranked results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

_DAY_MS: Final = 86_400_000
_JUDGEMENT: Final = 0.2
"""Share of a score that judgements add or take: about 15 places among fused ranks."""


def aged(score: float, age_ms: float, half_life_days: float) -> float:
    """Return what a score is worth at an age: half of it at the half-life; at most 0 stays."""
    if score <= 0:
        return score
    return float(score * 0.5 ** (max(0.0, age_ms) / (half_life_days * _DAY_MS)))


def judged(score: float, usefulness: float) -> float:
    """Return what a score is worth after judgements: .8 of it (-1) to 1.2 (1); at most 0 stays.

    `usefulness`: from -1, always rejected, to 1, always accepted; 0: not judged.
    """
    return score if score <= 0 else score * (1 + _JUDGEMENT * usefulness)


def diversify(
    scores: Sequence[float], vectors: npt.NDArray[np.float32], k: int, diversity: float
) -> list[int]:
    """Return the positions of `k` results, chosen one after the other.

    Maximal marginal relevance (Carbonell and Goldstein, 1998): each choice has the highest
    (1 - diversity) relevance - diversity likeness to what is chosen. Relevance: the score, scaled
    to 0 to 1. `vectors`: shape (results, dimensions), of length 1, or 0 where there is none.
    """
    relevance = _scaled(np.asarray(scores, dtype=np.float64))
    likeness = np.zeros(len(relevance))
    free = np.ones(len(relevance), dtype=bool)
    chosen: list[int] = []
    for _ in range(min(k, len(relevance))):
        worth = np.where(free, (1 - diversity) * relevance - diversity * likeness, -np.inf)
        best = int(worth.argmax())
        chosen.append(best)
        free[best] = False
        likeness = np.maximum(likeness, vectors @ vectors[best])
    return chosen


def _scaled(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not len(scores) or (spread := float(np.ptp(scores))) == 0:
        return np.ones(len(scores))
    scaled: npt.NDArray[np.float64] = (scores - scores.min()) / spread
    return scaled


def vector_text(vector: npt.NDArray[np.float32]) -> str:
    """Return a vector as pgvector's text."""
    return "[" + ",".join(map(repr, vector.astype(np.float16).tolist())) + "]"


def rows_of(
    vectors: Mapping[int, npt.NDArray[np.float32]], ids: Sequence[int]
) -> npt.NDArray[np.float32]:
    """Return one row for each id, of length 1, or 0 for an id without a vector."""
    size = len(next(iter(vectors.values()))) if vectors else 1
    rows = np.zeros((len(ids), size), dtype=np.float32)
    for place, each in enumerate(ids):
        if each in vectors:
            rows[place] = vectors[each]
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, length, out=rows, where=length > 0)
    return rows
