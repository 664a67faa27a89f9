"""MemRL's rule: a pool by similarity, then z(similarity) and z(utility) in equal parts.

Pool: cosine above delta; score (1 - l) z(sim) + l z(Q), l = .5; of the cases that were retrieved,
Q <- Q + a (r - Q); nothing is retrieved from an empty pool. A retrieved case's reward r is 1 if its
sequence is what happened.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from memory.ranking.asked import NOTHING, AskedBank, FinishedRun, Retrieved
from memory.ranking.bank import Numbers, Rows

DELTA: Final = 0.5
MIX: Final = 0.5
RATE: Final = 0.3


class MemRLRule:
    """Retrieves the four cases of the highest score in the pool."""

    def __init__(self, delta: float = DELTA) -> None:
        self._delta = delta
        self._utility: Numbers = np.zeros(0)
        self._shown: Rows = np.zeros(0, np.int64)

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return on what they agree."""
        cosine = asked.found.cosine
        pool = asked.rows[cosine[asked.rows] > self._delta]
        self._shown = pool
        if not len(pool):
            return NOTHING
        if len(self._utility) < len(cosine):
            self._utility = np.concatenate([self._utility, np.zeros(2 * len(cosine))])
        utility = self._utility[pool]
        scores = np.zeros(len(cosine))
        scores[pool] = (1 - MIX) * _standard(cosine[pool]) + MIX * _standard(utility)
        self._shown = asked.best(scores, among=pool)
        return asked.agreed(self._shown)

    def learn(self, asked: AskedBank, outcome: FinishedRun) -> None:
        """Move the utility of the retrieved cases towards their reward."""
        for row in self._shown:
            reward = float(asked.rests[row] == outcome.sequence)
            self._utility[row] += RATE * (reward - self._utility[row])


def _standard(values: Numbers) -> Numbers:
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))
