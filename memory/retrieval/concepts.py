"""Which concepts appear in the same episodes, and how much more often than by chance."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from memory.retrieval.profile_limits import profile_limits
from memory.retrieval.request import MemoryQuery
from memory.retrieval.statements import filters_of, statement
from memory.store.reading import RELATED_SHARE
from sinks.postgres.reading import tenant_scope

MOST_CONCEPTS: Final = 500
MOST_PAIRS: Final = 5_000


class ConceptCount(NamedTuple):
    """A concept and the number of episodes that have it."""

    concept: str
    episodes: int


class ConceptPair(NamedTuple):
    """Two concepts, in alphabetical order, and the number of episodes that have both."""

    a: str
    b: str
    episodes: int
    lift: float
    """How many times as often as if the two were independent."""
    share: float
    """Of the episodes that have a concept."""

    @property
    def related(self) -> bool:
        """Whether they are related: both in more than a fifth of the episodes."""
        return self.share > RELATED_SHARE


class ConceptGraph(NamedTuple):
    """The most frequent concepts of a tenant, and their most frequent pairs."""

    episodes: int
    """Those that have a concept."""
    concepts: list[ConceptCount]
    pairs: list[ConceptPair]

    def only_related(self) -> ConceptGraph:
        """Return it with related pairs only."""
        return self._replace(pairs=[each for each in self.pairs if each.related])

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "episodes": self.episodes,
            "concepts": [each._asdict() for each in self.concepts],
            "pairs": [each._asdict() | {"share": round(each.share, 3)} for each in self.pairs],
        }


async def read_concepts(
    connection: AsyncConnection[Any], query: MemoryQuery, concepts: int = 50, pairs: int = 200
) -> ConceptGraph:
    """Read the graph of the episodes that pass the filters of `query`, all else of it is unused.

    Episodes of users whose memory is off are left out, as in a search.

    Raises `ValueError` for more than 500 concepts or 5,000 pairs.
    """
    for name, value, most in (("concepts", concepts, MOST_CONCEPTS), ("pairs", pairs, MOST_PAIRS)):
        if not 1 <= value <= most:
            raise ValueError(f"{name} must be from 1 to {most:,}, not {value}")
    which: dict[str, Any] = {"tenant": query.tenant, **filters_of(query)}
    async with tenant_scope(connection, query.tenant):
        which |= (await profile_limits(connection, query)).filters
        cursor = await connection.execute(statement("concept_counts"), {**which, "most": concepts})
        rows = await cursor.fetchall()
        if not rows:
            return ConceptGraph(0, [], [])
        counts = {concept: count for concept, count, _ in rows}
        shown = {**which, "concepts_shown": list(counts), "most": pairs}
        found = await (await connection.execute(statement("concept_pairs"), shown)).fetchall()
    total: int = rows[0][2]
    return ConceptGraph(
        total,
        [ConceptCount(*each) for each in counts.items()],
        [
            ConceptPair(a, b, both, round(both * total / (counts[a] * counts[b]), 3), both / total)
            for a, b, both in found
        ],
    )
