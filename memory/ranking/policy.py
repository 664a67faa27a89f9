"""The ranking policy of a tenant: weights by which the cases of a pool are ordered.

A Q-function: how alike a case's course will be to what happens. It learns from the cases of every
finished run's pool, also of those that were never shown (full feedback).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from memory.ranking.asked import CASES
from memory.ranking.bank import Numbers, Rows
from memory.ranking.logistic import OnlineLogistic
from memory.ranking.pool import FEATURES, FIRST, Pool
from memory.ranking.q_function import BEST, OTHERS, votes
from memory.ranking.votes import few_of_each, one_each

RATE: Final = 0.1
"""AdaGrad's; of .3, .1 and .03 with 4, 8 or 16 voters the best on two sets of recorded runs."""
VOTERS: Final = 8
_MULTIPLIER: Final = 6364136223846793005
_INCREMENT: Final = 1442695040888963407


class RankedPool(NamedTuple):
    """The cases of a pool that vote, best first, and their votes."""

    rows: Rows
    votes: Numbers

    def foresees(self, pool: Pool) -> tuple[int, int]:
        """Return the case whose tools have most votes, and the one most alike to all votes."""
        numbers = pool.sequences[self.rows]
        by_sequence: Numbers = np.bincount(numbers, self.votes).astype(np.float64)[numbers]
        alike = pool.alike[np.ix_(self.rows, self.rows)] @ self.votes
        return self._first(by_sequence), self._first(alike)

    def _first(self, scores: Numbers) -> int:
        return int(self.rows[np.argmax(np.round(scores, 9))])


class CasePolicy:
    """Weights of `FEATURES`; deterministic: the same pools in the same order give the same bits."""

    def __init__(self, model: OnlineLogistic | None = None, chance: int = 0) -> None:
        self.model = model or OnlineLogistic(FIRST, rate=RATE)
        self.chance = chance

    def ranked(self, pool: Pool) -> RankedPool:
        """Return the cases of the highest scores; few of each writer, whose votes are one."""
        return rank(pool, scored(self.model.weights, pool))

    def learn(self, pool: Pool, labels: Sequence[float]) -> None:
        """Learn from the best cases and from others by chance. `labels`: 0 to 1, one a case."""
        scores = scored(self.model.weights, pool)
        best = np.argsort(-scores, kind="stable")[:BEST].tolist()
        rows = [*best, *self._others(len(pool))]
        seen = pool.features[rows].tolist()
        for row, features in zip(rows, seen, strict=True):
            self.model.learn(features, labels[row])

    def _others(self, size: int) -> list[int]:
        rows = []
        for _ in range(min(OTHERS, size)):  # Knuth's MMIX generator; its high bits are used
            self.chance = (self.chance * _MULTIPLIER + _INCREMENT) % (1 << 64)
            rows.append((self.chance >> 33) % size)
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, from which `from_json` makes it again to the bit."""
        return {"model": self.model.to_json(), "chance": self.chance}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> CasePolicy:
        """Return what `to_json` described."""
        return cls(OnlineLogistic.from_json(state["model"]), state["chance"])


def scored(weights: Sequence[float], pool: Pool) -> Numbers:
    """Return the log odds of each case, added in the order of `FEATURES`."""
    found = np.zeros(len(pool))
    for weight, column in zip(weights, pool.features.T, strict=True):
        found += weight * column
    return found


def rank(pool: Pool, scores: Numbers) -> RankedPool:
    """Return the best cases by scores, of equals the first, with their votes."""
    order = np.argsort(-scores, kind="stable")
    rows = order[few_of_each(pool.writers[order], pool.own[order])][:VOTERS]
    weights = one_each(pool.writers[rows], pool.own[rows], votes(scores[rows]), _runs(pool, rows))
    return RankedPool(rows, weights)


def by_similarity(pool: Pool) -> RankedPool:
    """Return the first cases of the search: what ranks without a policy.

    The first four have equal votes, the next four a quarter each: so one writer, who has at most
    four of them, is not alone.
    """
    rows = np.arange(len(pool))
    rows = rows[few_of_each(pool.writers, pool.own)][:VOTERS]
    weights = np.where(np.arange(len(rows)) < CASES, 1.0, 0.25)
    return RankedPool(
        rows, one_each(pool.writers[rows], pool.own[rows], weights, _runs(pool, rows))
    )


def _runs(pool: Pool, rows: Rows) -> Numbers:
    """Return how many votes each case has: as many as unmerged runs would have at most."""
    found: Numbers = np.minimum(pool.support[rows], VOTERS)
    return found


def knows(features: Sequence[str]) -> bool:
    """Return whether stored weights are of the features of this version."""
    return tuple(features) == FEATURES
