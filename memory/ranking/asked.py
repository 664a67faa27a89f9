"""One question to a bank, with what several methods need to answer it, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from memory.ranking.bank import CaseBank, CaseQuestion, Numbers, Rows
from memory.ranking.best_rows import best_rows
from memory.ranking.features import features
from memory.ranking.typicality import medoid

CASES: Final = 4
"""Cases that are reused: the best number in Memento (arXiv 2508.16153), and here."""


class Retrieved(NamedTuple):
    """What a method expects to happen after the first call; None for no answer.

    Two numbers of the bank's table, for two purposes: `likeliest` is the sequence that most likely
    happens exactly, `course` the one that is most alike to what may happen. `rows`: the cases
    behind it, best first.
    """

    likeliest: int | None
    course: int | None
    rows: Sequence[int] = ()


NOTHING: Final = Retrieved(None, None)


class AskedBank:
    """A question, how all cases match it, and what is derived from that."""

    def __init__(self, bank: CaseBank, question: CaseQuestion) -> None:
        self.bank, self.question = bank, question
        self.found = bank.matches(question)
        self.rows = self.found.rows
        self.rests = bank.rests.values

    @cached_property
    def typical(self) -> tuple[Rows, Numbers] | None:
        """The sequences after the question's tool, and their typicality."""
        return self.bank.typical_rests(self.question)

    @cached_property
    def medoid(self) -> int | None:
        """The most typical sequence."""
        return None if self.typical is None else medoid(*self.typical)

    @cached_property
    def typicality(self) -> Numbers:
        """The typicality of each sequence of the table, 0 where it is unknown."""
        found = np.zeros(len(self.bank.table))
        if self.typical is not None:
            numbers, scores = self.typical
            found[numbers] = scores
        return found

    @cached_property
    def features(self) -> Numbers:
        """The features of each case."""
        return features(self.bank, self.found, self.typicality[self.rests])

    @cached_property
    def same_call(self) -> Rows:
        """The cases that begin with an equal call, oldest first."""
        return self.rows[self.found.equal_call[self.rows]]

    @cached_property
    def same_tool(self) -> Rows:
        """The cases that begin with the same tool, oldest first."""
        return self.rows[self.found.equal_tool[self.rows]]

    def best(self, scores: Numbers, count: int = CASES, among: Rows | None = None) -> Rows:
        """Return the cases of the highest scores, of equals the oldest."""
        return best_rows(scores, self.rows if among is None else among, count)

    def agreed(self, rows: Rows, weights: Numbers | None = None) -> Retrieved:
        """Return the sequence of most votes, and the one that is most alike to all votes.

        Of equals the one of the first case.
        """
        if not len(rows):
            return NOTHING
        if weights is None:
            weights = np.ones(len(rows))
        numbers, inverse = np.unique(self.rests[rows], return_inverse=True)
        votes = np.bincount(inverse, weights).astype(np.float64)
        first = np.full(len(numbers), len(rows))
        np.minimum.at(first, inverse, np.arange(len(rows)))
        alike = self.bank.alike.between(numbers, numbers) @ votes
        shown = tuple(int(row) for row in rows[:CASES])
        return Retrieved(_first(numbers, votes, first), _first(numbers, alike, first), shown)


def _first(numbers: Rows, scores: Numbers, order: Rows) -> int:
    """Return the number of the highest score; of equals the first in an order."""
    best = min(
        range(len(numbers)), key=lambda place: (-round(float(scores[place]), 9), order[place])
    )
    return int(numbers[best])


class FinishedRun:
    """What happened after a question: the run's sequence, and how alike those of cases are."""

    def __init__(self, bank: CaseBank, sequence: int, reward: float | None) -> None:
        self._bank, self.sequence, self.reward = bank, sequence, reward

    def similarities(self, sequences: Rows) -> Numbers:
        """Return how alike sequences are to what happened."""
        found: Numbers = self._bank.alike.between(np.array([self.sequence]), sequences)[0]
        return found

    def labels(self, sequences: Rows) -> Numbers:
        """Return the labels that rankings learn: half how alike, half whether equal."""
        found: Numbers = (self.similarities(sequences) + (sequences == self.sequence)) / 2
        return found
