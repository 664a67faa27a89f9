"""Learns a tenant's ranking policy from its finished runs, each asked for before it is learned."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from memory.cases.case import words
from memory.cases.sequences import Similarities, pairwise_similarities
from memory.ranking.bank import Numbers, Rows
from memory.ranking.case_window import CaseWindow, FinishedCase
from memory.ranking.policy import CasePolicy, RankedPool, by_similarity
from memory.ranking.pool import Pool, PoolCase
from memory.ranking.standing import JudgedRankings, Standing

USUAL: Final = 16
"""Newest runs whose medoid is the usual course."""


class AskedPool:
    """The cases that were found for a finished run, at least one, and what each was worth.

    `cases` and `pool`: the same cases, in the order of the search.
    """

    def __init__(
        self,
        case: FinishedCase,
        found: Sequence[tuple[FinishedCase, PoolCase]],
        recent: Sequence[FinishedCase],
    ) -> None:
        sequences = [case.tools, *(each.tools for each, _ in found), *(e.tools for e in recent)]
        alike, numbers = _all_alike(sequences)
        labels = (alike[0] + (numbers == numbers[0])) / 2
        in_pool, in_recent = slice(1, len(found) + 1), slice(len(found) + 1, None)
        self.cases = [each for each, _ in found]
        self.pool = Pool(
            frozenset(words(case.query)), [each for _, each in found], alike[in_pool, in_pool]
        )
        self.labels: Numbers = labels[in_pool]
        self._alike: Numbers = alike[0, in_pool]
        usual = alike[in_recent, in_recent].sum(axis=1)
        self._usual = float(labels[in_recent][int(np.argmax(usual))])

    def judged(self, policy: CasePolicy) -> JudgedRankings:
        """Return how right the policy, similarity and the usual course are."""
        return JudgedRankings(
            self._rightness(policy.ranked(self.pool)),
            self._rightness(by_similarity(self.pool)),
            self._usual,
        )

    def _rightness(self, ranked: RankedPool) -> float:
        """Return half how alike the expected course is, half whether the likeliest happened."""
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
        recent = window.newest(case.started, USUAL, without)
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
