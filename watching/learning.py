"""What was learned, summed up from what Redis serves: contexts, hits, time saved and wasted."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sinks.served import served_thresholds
from topics.schema import Counts

_FIELDS: Final = Counts.__struct_fields__


@dataclass(frozen=True)
class Context:
    """A context as it is served."""

    tenant: str
    path: str
    speculate: float
    outcomes: int


@dataclass(frozen=True)
class Learned:
    """Sums over all tenants. Times in ms: what right guesses saved, and wrong ones wasted."""

    contexts: int = 0
    outcomes: int = 0
    hits: int = 0
    misses: int = 0
    saved_ms: float = 0.0
    wasted_ms: float = 0.0
    leading: tuple[Context, ...] = ()
    """Those with the most outcomes, most first."""

    @property
    def hit_rate(self) -> float | None:
        """Hits of what was speculated on; None where nothing was."""
        begun = self.hits + self.misses
        return self.hits / begun if begun else None

    @property
    def net_ms(self) -> float:
        """What speculation was worth."""
        return self.saved_ms - self.wasted_ms


async def ask_learned(redis: str, tenant: str | None = None, leading: int = 8) -> Learned:
    """Return what is served, of one tenant where named. Raises `RedisUnreachable`."""
    return await summed(served_thresholds(redis, tenant), leading)


async def summed(served: AsyncIterable[Mapping[str, Any]], leading: int) -> Learned:
    """Sum served values up: an outcome counts at every level, so only workflow types are added."""
    contexts = outcomes = hits = misses = saved = wasted = 0
    first: list[tuple[int, str, str, float]] = []
    async for each in served:
        contexts += 1
        entry = (each["outcomes"], each["path"], each["tenant"], each["speculate"])
        if len(first) < leading:
            heapq.heappush(first, entry)
        elif leading:
            heapq.heappushpop(first, entry)
        if "/" in each["path"]:
            continue
        outcomes += each["outcomes"]
        counts = Counts(**dict(zip(_FIELDS, each.get("counts") or (), strict=False)))
        hits += counts.speculative_right
        misses += counts.speculative - counts.speculative_right
        saved += counts.saved
        wasted += counts.wasted
    found = tuple(
        Context(tenant, path, speculate, count)
        for count, path, tenant, speculate in sorted(first, key=lambda e: (-e[0], e[1]))
    )
    return Learned(contexts, outcomes, hits, misses, saved / 1000, wasted / 1000, found)
