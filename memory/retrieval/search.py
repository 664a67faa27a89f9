"""Answers one request within one transaction: ranks ids by its mode, then reads the episodes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from psycopg import AsyncConnection, AsyncCursor
from psycopg.types.json import Jsonb

from memory.episodes.assembly import MAX_QUERY
from memory.episodes.hashes import CONTEXT_KEYS, context_hash, query_hash
from memory.ranking.rank_fusion import fuse_ranks
from memory.retrieval.embedding import VectorModel
from memory.retrieval.fusion import (
    aged,
    diversify,
    judged,
    rows_of,
    vector_text,
)
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import FoundEpisode
from memory.retrieval.sealed_episodes import SealedEpisodes
from memory.retrieval.statements import (
    NO_LIMITS,
    Filters,
    filters_of,
    given_filters,
    needs_episodes,
    statement,
    vector_statement,
)
from memory.retrieval.words import (
    ENOUGH_ROWS,
    WordCounter,
    any_of,
    more_words,
    rare_words,
)
from memory.store.halfvec import unpack_halfvec

LEG: Final = 50
"""Results of each part of the hybrid mode, at least."""
EXACT_ROWS: Final = 6_000
"""Up to so many vectors are all compared."""
_WINDOW: Final = 1_000
"""Newest episodes whose pairs are compared first."""
_ALL: Final = 2**31 - 1
_POOL: Final = 4
"""Candidates for each result, where age, diversity or judgements change the order."""
_JUDGED: Final = 100
"""The most candidates that are looked at for judgements, where k is not larger."""


_ENDED: Final = object()

Vector = npt.NDArray[np.float32]
Cursor = AsyncCursor[Any]


class QueryVector(NamedTuple):
    """The vector of a query, and the model that it belongs to; no vector: nothing is similar."""

    model: VectorModel
    vector: Vector | None


class Search:
    """One request over an open transaction whose tenant is set, best in pipeline mode."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        query: MemoryQuery,
        words: WordCounter | None,
        vector: QueryVector | None,
        limits: Filters = NO_LIMITS,
    ) -> None:
        """`limits`: filters of profiles, as `memory.retrieval.profile_limits` returns them.

        `words`, `vector`: None: that part is not searched.
        """
        self._connection, self._query, self._words, self._vector = connection, query, words, vector
        self._filters: Filters = {**filters_of(query), **limits}
        self._base = {"tenant": query.tenant, **self._filters}
        self._whole = needs_episodes(self._filters)
        self._similarities: dict[int, float] = {}
        self._texts = SealedEpisodes(connection, query.tenant)

    @property
    def degraded(self) -> tuple[str, ...]:
        """What was not searched or opened, once `run` has returned."""
        return self._texts.degraded(words=self._query.mode in {"lexical", "hybrid"})

    async def run(self) -> tuple[FoundEpisode, ...]:
        """Return the episodes, best first: min(k, matching)."""
        await self._texts.begin()
        reorders = self._query.half_life_days is not None or self._query.diversity > 0
        depth = self._query.k * _POOL if reorders else self._query.k
        found = await self._found(await self._judged_scores(depth), depth)
        if found is None:  # vectors of episodes that are not live any more took their places
            self._whole = True
            found = await self._found(await self._judged_scores(depth), depth) or []
        return tuple(await self._ordered(found))

    async def _judged_scores(self, depth: int) -> dict[int, float]:
        """Return ids with their scores, those of judged episodes weighed by their usefulness."""
        most = max(depth, min(_POOL * self._query.k, _JUDGED))
        scores = await self._scores(most)
        ids = list(scores)[:most]
        useful = dict(await self._rows("judged", ids=ids)) if ids else {}
        if not useful:
            return scores
        weighed = [(each, judged(score, useful.get(each, 0.0))) for each, score in scores.items()]
        return dict(sorted(weighed, key=lambda item: -item[1]))

    async def _scores(self, depth: int) -> dict[int, float]:
        """Return ids with their scores, best first; for `hybrid` more than asked."""
        mode = self._query.mode
        if mode == "fuzzy":
            return await self._fuzzy(depth)
        k = max(LEG, depth) if mode == "hybrid" else depth
        nearest, worded, equal = _Ranking(), _Ranking(), _Ranking()
        parts: list[AsyncIterator[None]] = []
        if mode in {"vector", "hybrid"}:
            parts.append(self._nearest(k, nearest))
        if mode in {"lexical", "hybrid"}:
            parts.append(self._with_words(k, worded))
        if mode == "exact" or (
            mode == "hybrid" and self._query.context is not None and self._query.workflow_type
        ):
            parts.append(self._equal(k, equal))
        await _together(parts)
        if mode == "hybrid":
            return fuse_ranks((nearest.ids, worded.ids, equal.ids))
        if mode == "vector":
            return dict(self._similarities)
        return fuse_ranks([worded.ids or equal.ids])

    async def _found(self, scores: dict[int, float], depth: int) -> list[FoundEpisode] | None:
        """Read the episodes; None if some are not live, and others could take their places."""
        ids = list(scores)[:depth]
        rows = {row[0]: row for row in await self._rows("episodes", ids=ids)} if ids else {}
        if len(rows) < len(ids) and self._vector is not None and not self._whole:
            return None
        opened = await self._texts.opened(rows.values())
        return [
            opened[each]._replace(score=scores[each], similarity=self._similarities.get(each))
            for each in ids
            if each in opened
        ]

    async def _ordered(self, found: list[FoundEpisode]) -> list[FoundEpisode]:
        query = self._query
        if query.half_life_days is not None:
            now = time.time() * 1000
            found = [
                each._replace(score=aged(each.score, now - each.ended, query.half_life_days))
                for each in found
            ]
            found.sort(key=lambda each: -each.score)
        if query.diversity > 0 and len(found) > 1:
            rows = await self._vectors_of([each.id for each in found])
            scores = [each.score for each in found]
            found = [found[place] for place in diversify(scores, rows, query.k, query.diversity)]
        return found[: query.k]

    async def _vectors_of(self, ids: Sequence[int]) -> Vector:
        if self._vector is None:
            return rows_of({}, ids)
        rows = await self._rows("vectors", ids=list(ids), model=self._vector.model.id)
        return rows_of({each: unpack_halfvec(raw) for each, raw in rows}, ids)

    async def _equal(self, k: int, into: _Ranking) -> AsyncIterator[None]:
        """Find equal queries and contexts; in mode `hybrid` contexts alone."""
        query = self._query
        hashed = query_hash(query.text) if query.mode == "exact" else None
        hashes = [hashed] if hashed is None else [hashed, *await self._texts.hashes(hashed)]
        cursors = [await self._start_equal(k, each) for each in hashes]
        yield
        found = [[row[0] for row in await cursor.fetchall()] for cursor in cursors]
        into.ids = [each for ids in reversed(found) for each in ids][:k]  # the encrypted are newer

    async def _start_equal(self, k: int, hashed: int | None) -> Cursor:
        query = self._query
        if query.context is None:
            return await self._start("equal_query", k=k, query_hash=hashed)
        if tuple(query.keys) != CONTEXT_KEYS:
            part = {key: query.context[key] for key in query.keys if key in query.context}
            which = {"query_hash": hashed, "keys": list(query.keys), "part": Jsonb(part)}
            return await self._start("equal_keys", k=k, **which)
        which = {"context_hash": context_hash(query.workflow_type or "", query.context)}
        name = "equal_context" if hashed is None else "equal_query_and_context"
        return await self._start(name, k=k, query_hash=hashed, **which)

    async def _fuzzy(self, k: int) -> dict[int, float]:
        context = dict(self._query.context or {})
        part = Jsonb(context)
        scores = {row[0]: 1.0 for row in await self._rows("contained", k=k, part=part)}
        for newest in (_WINDOW, _ALL):
            if len(scores) >= k:
                break
            rows = await self._rows("shared_pairs", k=k, part=part, newest=newest)
            scores |= {each: pairs / len(context) for each, pairs in rows if each not in scores}
        return dict(list(scores.items())[:k])

    async def _with_words(self, k: int, into: _Ranking) -> AsyncIterator[None]:
        """Find queries that share words, by the rare ones if these find enough."""
        words = self._words
        if words is None:
            return
        cursor = await self._start("lexemes", text=self._query.text[:MAX_QUERY])
        yield
        ((lexemes,),) = await cursor.fetchall()
        if not lexemes:
            return
        shares = await words.shares(self._connection, self._query.tenant)
        rare = rare_words(lexemes, shares, max(ENOUGH_ROWS, 2 * k))
        cursor = await self._start("words", k=k, words=any_of(rare))
        yield
        into.ids = [row[0] for row in await cursor.fetchall()]
        if len(into.ids) < k and len(rare) < len(lexemes):
            more = any_of(more_words(lexemes, rare, shares))
            into.ids = [row[0] for row in await self._rows("words", k=k, words=more)]

    async def _nearest(self, k: int, into: _Ranking) -> AsyncIterator[None]:
        """Find the nearest vectors, and remember how near they are."""
        if self._vector is None or self._vector.vector is None:
            return
        which = {"model": self._vector.model.id, "vector": vector_text(self._vector.vector), "k": k}
        cursor = await self._start_on_vectors("count_vectors", which, limit=EXACT_ROWS + 1)
        yield
        ((count,),) = await cursor.fetchall()
        first = "nearest_hnsw" if count > EXACT_ROWS else "nearest_exact"
        cursor = await self._start_on_vectors(first, which)
        yield
        rows = await cursor.fetchall()
        if first == "nearest_hnsw" and len(rows) < k:
            cursor = await self._start_on_vectors("nearest_exact", which)
            rows = await cursor.fetchall()
        self._similarities = {each: 1.0 - distance for each, distance in rows}
        into.ids = list(self._similarities)

    async def _start_on_vectors(self, name: str, which: Mapping[str, Any], **more: Any) -> Cursor:
        sql = vector_statement(name, given_filters(self._filters), whole=self._whole)
        return await self._connection.execute(sql, {**self._base, **which, **more})

    async def _start(self, name: str, **more: Any) -> Cursor:
        """Send a statement; it is waited for when its rows are read."""
        return await self._connection.execute(statement(name), {**self._base, **more})

    async def _rows(self, name: str, **more: Any) -> Sequence[tuple[Any, ...]]:
        return await (await self._start(name, **more)).fetchall()


class _Ranking:
    """Ids that a part of a request has found, best first."""

    def __init__(self) -> None:
        self.ids: list[int] = []


async def _together(parts: Sequence[AsyncIterator[None]]) -> None:
    """Run parts up to their next `yield` in turn, so that their statements travel together."""
    while parts:
        parts = [each for each in parts if await anext(each, _ENDED) is not _ENDED]
