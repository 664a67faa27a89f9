"""A pool: the cases that a search found for a question, and what a policy sees of each.

Everything is computed from the pool alone, so that the worker, which learns from finished runs, and
a reader, which asks the database, see the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import log
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.ranking.bank import Numbers, Rows
from memory.ranking.features import inverse_ranks

POOL: Final = 64
"""Cases of a pool, at most."""
MOST_WORDS: Final = 32
"""Words of a question that count: the rarest ones in the pool."""
FEATURES: Final = (
    "bias", "cosine", "cosine_rank", "words", "words_rank", "fused", "telling", "equal_query",
    "own", "reward", "age", "agreement", "frequency", "length", "cosine_reward",
    "equal_query_reward", "usefulness",
)  # fmt: skip
FIRST: Final = (
    -1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 1.0, 0.5, 0.5, 0.3, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.5,
)  # fmt: skip
"""Weights before anything is learned: alike, agreeing and successful cases first."""
_STEPS: Final = float(1 << 20)
_PRIOR: Final = 4.0


class PoolCase(NamedTuple):
    """One case of a pool. `cosine`: with the question's vector; 0 without."""

    words: frozenset[str]
    tools: tuple[str, ...]
    writer: str
    cosine: float
    equal_query: bool
    own: bool
    """Whether the run's own writer wrote it."""
    reward: float
    age_days: float
    usefulness: float = 0.0
    """From -1, always rejected, to 1; the worker learns without it."""
    support: int = 1
    """Equal runs of its writer that it stands for, with itself."""


class Pool:
    """Cases in the order of the search, best first. `words`: of the question.

    `alike`: edit similarity of the cases' tools, shape (cases, cases).
    """

    def __init__(self, words: frozenset[str], cases: Sequence[PoolCase], alike: Numbers) -> None:
        self.words, self.cases, self.alike = words, cases, alike
        numbers: dict[str, int] = {}
        self.writers: Rows = np.array(
            [numbers.setdefault(each.writer, len(numbers)) for each in cases], np.int64
        )
        self.own = np.array([each.own for each in cases], np.bool_)
        self.support = _column(each.support for each in cases)
        kinds: dict[tuple[str, ...], int] = {}
        self.sequences: Rows = np.array(
            [kinds.setdefault(each.tools, len(kinds)) for each in cases], np.int64
        )

    def __len__(self) -> int:
        return len(self.cases)

    @cached_property
    def features(self) -> Numbers:
        """What a policy sees of each case, shape (cases, len(FEATURES)), multiples of 2^-20."""
        size, cases = len(self), self.cases
        rows = np.arange(size)
        cosine = np.maximum(_column(each.cosine for each in cases), 0)
        shared, telling = self._words()
        reward = 2 * _column(each.reward for each in cases) - 1
        equal = _column(each.equal_query for each in cases)
        shares = self._shares
        columns = (
            np.ones(size),
            cosine,
            inverse_ranks(cosine, rows),
            shared,
            inverse_ranks(shared, rows),
            60 / (60 + rows),
            np.minimum(telling, 8) / 4,
            equal,
            self.own.astype(np.float64),
            reward,
            -np.log1p(_column(max(0.0, each.age_days) for each in cases)) / 5,
            self.alike @ shares,
            (self.sequences[:, None] == self.sequences) @ shares,
            np.minimum(_column(len(each.tools) for each in cases), 32) / 32,
            cosine * reward,
            equal * reward,
            _column(each.usefulness for each in cases),
        )
        found: Numbers = np.rint(np.stack(columns, axis=1) * _STEPS) / _STEPS
        return found

    @cached_property
    def _shares(self) -> Numbers:
        """The share of each case by its runs, where writers have equal ones."""
        counts = np.bincount(self.writers, self.support)
        found: Numbers = self.support / (counts[self.writers] * len(counts))
        return found

    def _words(self) -> tuple[Numbers, Numbers]:
        """Return the share of the question's words that each case has, and how much they tell.

        Of the share the rare words count more, as in BM25. How much: cases of other writers that
        share a word may be more alike than any; its weight is the logarithm of that.
        """
        size = len(self)
        having = {
            word: [row for row, case in enumerate(self.cases) if word in case.words]
            for word in self.words
        }
        known = sorted(
            (word for word in having if having[word]), key=lambda word: (len(having[word]), word)
        )[:MOST_WORDS]
        shared, telling, most = np.zeros(size), np.zeros(size), 0.0
        others = self._pairs
        alike = self.alike * others
        usual = (alike.sum() + 0.1) / (others.sum() + 1)
        for word in known:
            rows = np.array(having[word])
            weight = log(1 + (size - len(rows) + 0.5) / (len(rows) + 0.5))
            shared[rows] += weight
            most += weight
            block = np.ix_(rows, rows)
            own = alike[block].sum() + _PRIOR * usual
            ratio = own / ((others[block].sum() + _PRIOR) * usual)
            if ratio > 1:
                telling[rows] += log(ratio)
        return shared / most if most else shared, telling

    @cached_property
    def _pairs(self) -> Numbers:
        """Which cases are compared to see what a word tells: of two writers, if there are two."""
        pairs: npt.NDArray[np.bool_] = self.writers[:, None] != self.writers
        if not pairs.any():
            pairs = ~np.eye(len(self), dtype=np.bool_)
        found: Numbers = pairs.astype(np.float64)
        return found


def _column(values: Iterable[float]) -> Numbers:
    return np.fromiter(values, np.float64)
