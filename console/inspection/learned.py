"""Sums up the values that Redis serves: contexts, hits, time saved and wasted."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from psycopg import AsyncConnection

from sinks.postgres.queries import history_of_context
from sinks.redis.queries import UnreadableFields, served_thresholds
from topics.schema.json_schema import Counts

KEPT: Final = 60
"""Values to keep of a threshold's history."""
_ACTIVE_MS: Final = 60_000
_FIELDS: Final = Counts.__struct_fields__


@dataclass(frozen=True)
class LearnedContext:
    """The served value of a context."""

    tenant: str
    path: str
    speculate: float
    outcomes: int


@dataclass(frozen=True)
class LearnedSummary:
    """Sums over tenants. Times in ms: saved by right guesses, wasted by wrong ones."""

    contexts: int = 0
    outcomes: int = 0
    hits: int = 0
    misses: int = 0
    saved_ms: float = 0.0
    wasted_ms: float = 0.0
    leading: tuple[LearnedContext, ...] = ()
    """The most recently learned contexts (by minute), most outcomes first."""
    unreadable: tuple[UnreadableFields, ...] = ()
    """Values that cannot be read, which no sum includes."""

    @property
    def hit_rate(self) -> float | None:
        """Share of hits among started calls; None without any."""
        begun = self.hits + self.misses
        return self.hits / begun if begun else None

    @property
    def net_ms(self) -> float:
        """Time saved minus time wasted."""
        return self.saved_ms - self.wasted_ms


def counts_of(served: Mapping[str, Any]) -> Counts:
    """Return the counts of a served value; zeros for a value of an older version."""
    return Counts(**dict(zip(_FIELDS, served.get("counts") or (), strict=False)))


async def ask_learned(redis: str, tenant: str | None = None, leading: int = 8) -> LearnedSummary:
    """Return the sums of all served values, or a tenant's. Raises `RedisUnreachable`."""
    unreadable: list[UnreadableFields] = []
    found = await summed(served_thresholds(redis, tenant, unreadable=unreadable), leading)
    return replace(found, unreadable=tuple(unreadable))


async def ask_moves(
    connection: AsyncConnection[Any], contexts: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], list[float]]:
    """Return recent thresholds of contexts (tenant, path), oldest first."""
    found: dict[tuple[str, str], list[float]] = {}
    for key in contexts:
        changes = await history_of_context(connection, *key, limit=KEPT)
        found[key] = [each["speculate"] for each in reversed(changes)]
    return found


async def summed(served: AsyncIterable[Mapping[str, Any]], leading: int) -> LearnedSummary:
    """Sum served values; only workflow types, since an outcome counts at every level."""
    contexts = outcomes = hits = misses = saved = wasted = 0
    first: list[tuple[int, int, str, str, float]] = []
    async for each in served:
        contexts += 1
        minute = each["at"] // _ACTIVE_MS
        entry = (minute, each["outcomes"], each["path"], each["tenant"], each["speculate"])
        if len(first) < leading:
            heapq.heappush(first, entry)
        elif leading:
            heapq.heappushpop(first, entry)
        if "/" in each["path"]:
            continue
        outcomes += each["outcomes"]
        counts = counts_of(each)
        hits += counts.speculative_right
        misses += counts.speculative - counts.speculative_right
        saved += counts.saved
        wasted += counts.wasted
    found = tuple(
        LearnedContext(tenant, path, speculate, count)
        for _minute, count, path, tenant, speculate in sorted(first, key=lambda e: (-e[1], e[2]))
    )
    times = saved / 1000, wasted / 1000
    return LearnedSummary(contexts, outcomes, hits, misses, *times, found)
