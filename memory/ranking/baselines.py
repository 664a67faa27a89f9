"""Rules to compare with: by chance, by time, by frequency, by words, by embedding, by key."""

from __future__ import annotations

from random import Random
from typing import Protocol

import numpy as np

from memory.ranking.asked import CASES, NOTHING, AskedBank, FinishedRun, Retrieved
from memory.ranking.bank import Rows


class RankingMethod(Protocol):
    """Answers a question from past cases, and learns what happened then."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return what is expected."""
        ...

    def learn(self, asked: AskedBank, outcome: FinishedRun) -> None:
        """Learn what happened after a question that was answered."""


class _Fixed:
    def learn(self, asked: AskedBank, outcome: FinishedRun) -> None:
        """Learn nothing."""


class ByChance(_Fixed):
    """A case by chance."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = Random(seed)

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return the sequence of some case."""
        if not len(asked.rows):
            return NOTHING
        row = int(asked.rows[self._chance.randrange(len(asked.rows))])
        return asked.agreed(np.array([row]))


class Last(_Fixed):
    """The newest case."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return its sequence."""
        if not len(asked.rows):
            return NOTHING
        row = int(asked.rows[-1])
        return asked.agreed(np.array([row]))


class MostFrequent(_Fixed):
    """The sequence that was there most often."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return it; of equals the one that was known first."""
        return most_frequent(asked, asked.rows)


class MostFrequentAfterTool(_Fixed):
    """The sequence that was there most often after the same first tool."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return it, or that of all cases where none begins with the tool."""
        return most_frequent(asked, asked.same_tool if len(asked.same_tool) else asked.rows)


class Typical(_Fixed):
    """The medoid of the sequences after the same first tool."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return it, with the newest cases that took this course."""
        if asked.medoid is None:
            return NOTHING
        return Retrieved(asked.medoid, asked.medoid, newest_of(asked, asked.medoid, asked.rows))


class ByWords(_Fixed):
    """The four cases whose queries have most words in common with the question's (BM25)."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return on what they agree."""
        return asked.agreed(asked.best(asked.found.words))


class ByEmbedding(_Fixed):
    """The four cases whose queries are nearest, by cosine."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return on what they agree."""
        return asked.agreed(asked.best(asked.found.cosine))


class ByFirstCall(_Fixed):
    """The four newest cases with an equal first call; else with the same tool; else of all."""

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return on what they agree."""
        for rows in (asked.same_call, asked.same_tool, asked.rows):
            if len(rows):
                return asked.agreed(rows[: -CASES - 1 : -1])
        return NOTHING


def most_frequent(asked: AskedBank, rows: Rows) -> Retrieved:
    """Return the sequence that most cases have."""
    if not len(rows):
        return NOTHING
    sequence = int(np.bincount(asked.rests[rows]).argmax())
    return Retrieved(sequence, sequence, newest_of(asked, sequence, rows))


def newest_of(asked: AskedBank, sequence: int, rows: Rows) -> tuple[int, ...]:
    """Return the newest cases with a sequence."""
    found = rows[asked.rests[rows] == sequence][: -CASES - 1 : -1]
    return tuple(int(row) for row in found)
