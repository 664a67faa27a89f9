"""Learns a tenant's ranking policy from its finished runs, each asked for before it is learned."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.cases.case import words
from memory.cases.columns import GrowingColumn
from memory.cases.sequences import Similarities, pairwise_similarities
from memory.episodes.hashes import fold
from memory.ranking.bank import VECTOR_SCALE, Numbers, Rows, exact_vector
from memory.ranking.best_rows import best_rows
from memory.ranking.lexical import LexicalIndex
from memory.ranking.policy import CasePolicy, RankedPool, by_similarity
from memory.ranking.pool import POOL, Pool, PoolCase
from memory.ranking.standing import JudgedRankings, Standing

USUAL: Final = 16
"""Newest runs whose medoid is the usual course."""
_RANK_OFFSET: Final = 60
_DAY_MS: Final = 86_400_000


class FinishedCase(NamedTuple):
    """A finished run with a query and a call. Times are Unix ms; `vector`: None for none."""

    id: int
    kind: str
    writer: str
    query: str
    tools: tuple[str, ...]
    reward: float
    started: int
    ended: int
    vector: npt.NDArray[np.float32] | None


class CaseWindow:
    """The newest finished runs of a workflow type, searched as the database does: hybrid."""

    def __init__(self) -> None:
        self._cases: list[FinishedCase] = []
        self._words: list[frozenset[str]] = []
        self._index = LexicalIndex()
        self._ended = GrowingColumn(np.int64)
        self._vectors: GrowingColumn | None = None
        self._has_vector = GrowingColumn(np.bool_)

    def add(self, case: FinishedCase) -> None:
        """Add a run, newer than those before."""
        terms = words(case.query)
        self._index.add(terms)
        self._words.append(frozenset(terms))
        self._ended.append(case.ended)
        self._has_vector.append(case.vector is not None)
        if self._vectors is None and case.vector is not None:
            self._vectors = GrowingColumn(np.float32, len(case.vector))
            for _ in self._cases:
                self._vectors.append(0.0)
        if self._vectors is not None:
            self._vectors.append(0.0 if case.vector is None else exact_vector(case.vector))
        self._cases.append(case)

    def newest(self, until: int, most: int) -> list[FinishedCase]:
        """Return the newest runs that ended by a time, the newest first."""
        rows = np.flatnonzero(self._ended.values <= until)[: -most - 1 : -1]
        return [self._cases[row] for row in rows]

    def found(self, case: FinishedCase) -> list[tuple[FinishedCase, PoolCase]]:
        """Return the cases that a hybrid search finds for a run, of those that ended before it."""
        there = self._ended.values <= case.started
        nearest, cosine = self._nearest(case, there)
        worded = self._worded(case, there)
        scores: dict[int, float] = {}
        for rows in (nearest, worded):
            for rank, row in enumerate(rows.tolist(), 1):
                scores[row] = scores.get(row, 0.0) + 1 / (_RANK_OFFSET + rank)
        best = sorted(scores, key=lambda row: (-scores[row], row))[:POOL]
        least = float(cosine[nearest[-1]]) if len(nearest) else 0.0
        near = set(nearest.tolist())
        asked = fold(case.query)
        return [
            (self._cases[row], self._pool_case(row, case, asked, near, (cosine, least)))
            for row in best
        ]

    def _nearest(self, case: FinishedCase, there: npt.NDArray[np.bool_]) -> tuple[Rows, Numbers]:
        cosine = np.zeros(len(self._cases))
        if self._vectors is None or case.vector is None:
            return np.zeros(0, np.int64), cosine
        products: Any = self._vectors.values @ exact_vector(case.vector)
        cosine = products.astype(np.float64) / VECTOR_SCALE**2
        near = np.flatnonzero(there & self._has_vector.values)
        return best_rows(cosine, near, POOL), cosine

    def _worded(self, case: FinishedCase, there: npt.NDArray[np.bool_]) -> Rows:
        shared = self._index.scores(words(case.query))
        return best_rows(shared, np.flatnonzero(there & (shared > 0)), POOL)

    def _pool_case(
        self,
        row: int,
        asking: FinishedCase,
        asked: str,
        near: set[int],
        similarity: tuple[Numbers, float],
    ) -> PoolCase:
        case = self._cases[row]
        cosine, least = similarity
        return PoolCase(
            words=self._words[row],
            tools=case.tools,
            writer=case.writer,
            cosine=float(cosine[row]) if row in near else least,
            equal_query=fold(case.query) == asked,
            own=case.writer == asking.writer,
            reward=case.reward,
            age_days=(asking.started - case.ended) / _DAY_MS,
        )


class PolicyLearner:
    """Judges and learns finished runs in their order; pure and deterministic."""

    def __init__(self, policy: CasePolicy, standing: Standing) -> None:
        self.policy, self.standing = policy, standing
        self._windows: dict[str, CaseWindow] = {}

    def know(self, case: FinishedCase) -> None:
        """Add a run that was learned before; the oldest of its kind first."""
        self._windows.setdefault(case.kind, CaseWindow()).add(case)

    def learn(self, case: FinishedCase) -> None:
        """Ask for a run, judge what was foreseen, learn what happened, and keep the run."""
        window = self._windows.setdefault(case.kind, CaseWindow())
        found = window.found(case)
        if found:
            self._judge(case, found, window.newest(case.started, USUAL))
        window.add(case)

    def _judge(
        self,
        case: FinishedCase,
        found: list[tuple[FinishedCase, PoolCase]],
        recent: list[FinishedCase],
    ) -> None:
        sequences = [case.tools, *(each.tools for each, _ in found), *(e.tools for e in recent)]
        alike, numbers = _all_alike(sequences)
        in_pool = slice(1, len(found) + 1)
        labels = (alike[0] + (numbers == numbers[0])) / 2
        pool = Pool(
            frozenset(words(case.query)), [each for _, each in found], alike[in_pool, in_pool]
        )
        usual = alike[len(found) + 1 :, len(found) + 1 :].sum(axis=1)
        self.standing.add(
            case.kind,
            JudgedRankings(
                _rightness(self.policy.ranked(pool), pool, alike[0, in_pool], labels[in_pool]),
                _rightness(by_similarity(pool), pool, alike[0, in_pool], labels[in_pool]),
                float(labels[len(found) + 1 + int(np.argmax(usual))]),
            ),
        )
        self.policy.learn(pool, labels[in_pool].tolist())


def _rightness(ranked: RankedPool, pool: Pool, alike: Numbers, labels: Numbers) -> float:
    """Return half how alike the expected course is, half whether the likeliest is what happened."""
    likeliest, course = ranked.foresees(pool)
    equal = 2 * labels[likeliest] - alike[likeliest]
    return float((alike[course] + equal) / 2)


def _all_alike(sequences: list[tuple[str, ...]]) -> tuple[Similarities, Rows]:
    """Return the similarity of each sequence to each, and the number of each distinct one."""
    known: dict[tuple[str, ...], int] = {}
    numbers = np.array([known.setdefault(each, len(known)) for each in sequences], np.int64)
    return pairwise_similarities(list(known))[np.ix_(numbers, numbers)], numbers


def alike_tools(sequences: list[tuple[str, ...]]) -> Similarities:
    """Return the similarity of each sequence to each, computed once for each distinct one."""
    return _all_alike(sequences)[0]
