"""The Q-function: how alike a case's course will be to what happens, learned from every run.

Other memories learn from the cases that they showed. Here each finished run says of *every* case
whether its course matched (full feedback), so nothing has to be explored.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from memory.ranking.asked import AskedBank, FinishedRun, Retrieved
from memory.ranking.bank import Numbers, Rows
from memory.ranking.features import FIRST
from memory.ranking.logistic import OnlineLogistic

BEST: Final = 16
OTHERS: Final = 16
"""Cases of a finished run that are learned from: those of the highest scores, and some by chance,
so that the weights are not fitted to what is retrieved alone."""


SHARPNESS: Final = 3.0
"""A case's vote is exp(SHARPNESS x (its log odds - those of the best))."""


def votes(scores: Numbers) -> Numbers:
    """Return the weights of cases by their log odds, the best first."""
    found: Numbers = np.exp(SHARPNESS * (scores - scores.max(initial=-np.inf)))
    return found


class QFunction:
    """Scores cases by learned weights of their features. `seed` fixes what is by chance."""

    def __init__(self, model: OnlineLogistic | None = None, seed: int = 0) -> None:
        self.model = model or OnlineLogistic(FIRST)
        self._chance = seed
        self._last: tuple[AskedBank, Numbers] | None = None

    def scores(self, asked: AskedBank) -> Numbers:
        """Return the log odds of each case; the same ones until the question is learned."""
        if self._last is None or self._last[0] is not asked:
            found = np.zeros(len(asked.bank))
            for weight, column in zip(self.model.weights, asked.features.T, strict=True):
                found += weight * column
            self._last = asked, found
        return self._last[1]

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return on what the best cases agree, each with the weight of its score."""
        scores = self.scores(asked)
        best = asked.best(scores, BEST)
        return asked.agreed(best, votes(scores[best]))

    def learn(self, asked: AskedBank, run: FinishedRun) -> None:
        """Learn from the best cases and from others; remember which of the best ones matched."""
        if not len(asked.rows):
            return
        best = asked.best(self.scores(asked), BEST)
        rows = np.concatenate([best, self._others(asked.rows)])
        labels = run.labels(asked.rests[rows])
        for row, label in zip(rows, labels, strict=True):
            self.model.learn(asked.features[row].tolist(), float(label))
        asked.bank.helped.values[best] += labels[: len(best)]
        asked.bank.shown.values[best] += 1

    def _others(self, rows: Rows) -> Rows:
        places = []
        for _ in range(min(OTHERS, len(rows))):  # Knuth's MMIX generator; its high bits are used
            self._chance = (self._chance * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            places.append((self._chance >> 33) % len(rows))
        return rows[places]

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, from which `from_json` makes it again to the bit."""
        return {"model": self.model.to_json(), "chance": self._chance}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> QFunction:
        """Return what `to_json` described."""
        return cls(OnlineLogistic.from_json(state["model"]), state["chance"])
