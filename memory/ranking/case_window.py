"""The newest finished runs of a workflow type, searched in memory as the database searches them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.cases.case import words
from memory.cases.columns import GrowingColumn
from memory.episodes.hashes import fold
from memory.ranking.bank import VECTOR_SCALE, Numbers, Rows, exact_vector
from memory.ranking.best_rows import best_rows
from memory.ranking.lexical import LexicalIndex
from memory.ranking.pool import POOL, PoolCase
from memory.ranking.rank_fusion import fuse_ranks

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
        self._ids = GrowingColumn(np.int64)
        self._ended = GrowingColumn(np.int64)
        self._tools: dict[str, int] = {}
        self._firsts = GrowingColumn(np.int64)
        self._vectors: GrowingColumn | None = None
        self._has_vector = GrowingColumn(np.bool_)

    def add(self, case: FinishedCase) -> None:
        """Add a run, newer than those before."""
        terms = words(case.query)
        self._index.add(terms)
        self._words.append(frozenset(terms))
        self._ids.append(case.id)
        self._ended.append(case.ended)
        self._firsts.append(self._tools.setdefault(case.tools[0], len(self._tools)))
        self._has_vector.append(case.vector is not None)
        if self._vectors is None and case.vector is not None:
            self._vectors = GrowingColumn(np.float32, len(case.vector))
            for _ in self._cases:
                self._vectors.append(0.0)
        if self._vectors is not None:
            self._vectors.append(0.0 if case.vector is None else exact_vector(case.vector))
        self._cases.append(case)

    def newest_after(
        self, tool: str, until: int, most: int, without: Collection[int] = ()
    ) -> list[FinishedCase]:
        """Return the newest runs that ended by a time and began with a tool, the newest first.

        Those of all tools if none began with it. `without`: ids of runs that do not count.
        """
        there = self._there(until, without)
        same = there & (self._firsts.values == self._tools.get(tool, -1))
        rows = np.flatnonzero(same if same.any() else there)[: -most - 1 : -1]
        return [self._cases[row] for row in rows]

    def found(
        self, case: FinishedCase, without: Collection[int] = ()
    ) -> list[tuple[FinishedCase, PoolCase]]:
        """Return the cases that a hybrid search finds for a run, of those that ended before it.

        `without`: ids of runs that do not count.
        """
        there = self._there(case.started, without)
        nearest, cosine = self._nearest(case, there)
        worded = self._worded(case, there)
        best = list(fuse_ranks((nearest.tolist(), worded.tolist())))[:POOL]
        least = float(cosine[nearest[-1]]) if len(nearest) else 0.0
        near = set(nearest.tolist())
        asked = fold(case.query)
        return [
            (self._cases[row], self._pool_case(row, case, asked, near, (cosine, least)))
            for row in best
        ]

    def _there(self, until: int, without: Collection[int]) -> npt.NDArray[np.bool_]:
        there: npt.NDArray[np.bool_] = self._ended.values <= until
        return there & ~np.isin(self._ids.values, list(without)) if without else there

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
