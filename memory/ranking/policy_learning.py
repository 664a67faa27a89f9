"""Learns a tenant's ranking policy from its finished runs, each asked for before it is learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from memory.cases.case import words
from memory.cases.sequences import Similarities, pairwise_similarities
from memory.ranking.bank import Numbers, Rows
from memory.ranking.case_window import CaseWindow, FinishedCase
from memory.ranking.policy import CasePolicy, RankedPool, by_similarity
from memory.ranking.pool import Pool, PoolCase
from memory.ranking.standing import JudgedRankings, Standing

USUAL: Final = 64
"""Newest runs after the same first tool whose medoid is the usual course."""


class Foreseen(NamedTuple):
    """Tools after the first call: the likeliest sequence, and the course most alike to all."""

    likeliest: tuple[str, ...]
    course: tuple[str, ...]


def usual(rests: Sequence[tuple[str, ...]]) -> Foreseen:
    """Return the most frequent sequence of at least one, and their medoid; of equals the first."""
    counts = Counter(rests)
    alike = pairwise_similarities(list(counts)) @ np.array(list(counts.values()), np.float64)
    course = list(counts)[int(np.argmax(np.round(alike, 9)))]
    return Foreseen(max(counts, key=counts.__getitem__), course)


def after_tool(ranked: RankedPool, cases: Sequence[FinishedCase], tool: str) -> RankedPool:
    """Return the cases that begin with a tool, or all if none does."""
    same = np.array([cases[row].tools[0] == tool for row in ranked.rows])
    return RankedPool(ranked.rows[same], ranked.votes[same]) if same.any() else ranked


class AskedPool:
    """The cases that were found for a finished run, at least one, and what each was worth.

    `cases` and `pool`: the same cases, in the order of the search. `recent`: at least one run.
    """

    def __init__(
        self,
        case: FinishedCase,
        found: Sequence[tuple[FinishedCase, PoolCase]],
        recent: Sequence[FinishedCase],
    ) -> None:
        alike, numbers = _all_alike([case.tools, *(each.tools for each, _ in found)])
        labels = (alike[0] + (numbers == numbers[0])) / 2
        self.cases = [each for each, _ in found]
        self.pool = Pool(frozenset(words(case.query)), [each for _, each in found], alike[1:, 1:])
        self.labels: Numbers = labels[1:]
        self._alike: Numbers = alike[0, 1:]
        self._tools = case.tools
        self._recent = [each.tools[1:] for each in recent]

    def foreseen(self, ranked: RankedPool) -> Foreseen:
        """Return what the cases that vote say after the run's first tool.

        Those that begin with it count, or all if none does.
        """
        after = after_tool(ranked, self.cases, self._tools[0])
        likeliest, course = (self.cases[row].tools[1:] for row in after.foresees(self.pool))
        return Foreseen(likeliest, course)

    def judged(self, policy: CasePolicy) -> JudgedRankings:
        """Return how right the policy, similarity and the usual course are."""
        rankings = (policy.ranked(self.pool), by_similarity(self.pool))
        found = (*(self.foreseen(each) for each in rankings), usual(self._recent))
        actual = self._tools[1:]
        alike = pairwise_similarities([actual, *(each.course for each in found)])[0, 1:]
        right = [
            (float(a) + (each.likeliest == actual)) / 2
            for a, each in zip(alike, found, strict=True)
        ]
        by_policy, similar = (self._whole(each) for each in rankings)
        return JudgedRankings(right[0], right[1], right[2], by_policy - similar)

    def _whole(self, ranked: RankedPool) -> float:
        """Return how right a ranking is on the whole course, the first call included."""
        likeliest, course = ranked.foresees(self.pool)
        equal = 2 * self.labels[likeliest] - self._alike[likeliest]
        return float((self._alike[course] + equal) / 2)


class PolicyLearner:
    """Judges and learns finished runs in their order; pure and deterministic."""

    def __init__(self, policy: CasePolicy, standing: Standing) -> None:
        self.policy, self.standing = policy, standing
        self._windows: dict[str, CaseWindow] = {}

    def know(self, case: FinishedCase) -> None:
        """Add a run that was learned before; the oldest of its kind first."""
        self._windows.setdefault(case.kind, CaseWindow()).add(case)

    def ask(self, case: FinishedCase, without: Collection[int] = ()) -> AskedPool | None:
        """Return what is found for a run, None for nothing. `without`: ids that do not count."""
        window = self._windows.setdefault(case.kind, CaseWindow())
        found = window.found(case, without)
        recent = window.newest_after(case.tools[0], case.started, USUAL, without)
        return AskedPool(case, found, recent) if found else None

    def learn(self, case: FinishedCase, asked: AskedPool | None) -> None:
        """Judge what was foreseen for a run, learn what happened, and keep the run."""
        if asked is not None:
            self.standing.add(case.kind, asked.judged(self.policy))
            self.policy.learn(asked.pool, asked.labels.tolist())
        self.know(case)


def _all_alike(sequences: list[tuple[str, ...]]) -> tuple[Similarities, Rows]:
    """Return the similarity of each sequence to each, and the number of each distinct one."""
    known: dict[tuple[str, ...], int] = {}
    numbers = np.array([known.setdefault(each, len(known)) for each in sequences], np.int64)
    return pairwise_similarities(list(known))[np.ix_(numbers, numbers)], numbers


def alike_tools(sequences: list[tuple[str, ...]]) -> Similarities:
    """Return the similarity of each sequence to each, computed once for each distinct one."""
    return _all_alike(sequences)[0]
