"""Memento's rule (Zhou et al. 2025, arXiv 2508.16153): K = 4 by a Q-function of question and case.

Q is trained by binary cross entropy on the cases that were retrieved. Where the paper trains two
layers over both embeddings, this is their diagonal bilinear form with the cosine, begun at the
cosine, so that it is similarity until something is learned. A retrieved case's reward is 1 if its
sequence is what happened: following it would have done the same.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from memory.ranking.asked import NOTHING, AskedBank, FinishedRun, Retrieved
from memory.ranking.bank import VECTOR_SCALE, Numbers, Rows
from memory.ranking.logistic import OnlineLogistic

_RATE: Final = 0.02
_BIAS: Final = -2.0
_COSINE: Final = 4.0


class MementoRule:
    """Retrieves the four cases of the highest Q."""

    def __init__(self) -> None:
        self._model: OnlineLogistic | None = None
        self._shown: Rows = np.zeros(0, np.int64)
        self._seen: Numbers = np.zeros((0, 0))

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return on what they agree."""
        if not len(asked.rows):
            self._shown = asked.rows
            return NOTHING
        vectors = asked.bank.vectors
        given = asked.question.vector
        vector = np.zeros(vectors.shape[1]) if given is None else given.astype(np.float64)
        if self._model is None:
            start = [_BIAS, _COSINE, *[0.0] * vectors.shape[1]]
            self._model = OnlineLogistic(start, rate=_RATE)
        weights = np.array(self._model.weights)
        by_product = vectors @ (vector * weights[2:]).astype(np.float32) / VECTOR_SCALE
        scores = np.round(weights[1] * asked.found.cosine + by_product, 6)
        self._shown = shown = asked.best(scores)
        own = vectors[shown] * vector / VECTOR_SCALE
        self._seen = np.column_stack([np.ones(len(own)), asked.found.cosine[shown], own])
        return asked.agreed(self._shown)

    def learn(self, asked: AskedBank, outcome: FinishedRun) -> None:
        """Learn from the cases that were retrieved."""
        for row, seen in zip(self._shown, self._seen, strict=True):
            if self._model is not None:
                label = float(asked.rests[row] == outcome.sequence)
                self._model.learn(seen.tolist(), label)
