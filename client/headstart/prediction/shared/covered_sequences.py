"""Up to which sequence the decisions of each executor are learned."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from headstart.prediction.bounded_tables import evict_oldest

MOST_EXECUTORS: Final = 2_048
"""In the state: a repeated decision of an executor that was evicted is counted twice."""
MOST_SERVED: Final = 256
"""In a snapshot: an executor that is not listed takes its decisions as learned."""


class CoveredSequences:
    """The last sequence by executor; those that were silent longest are evicted."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.evicted = 0
        """How many executors have been evicted."""

    def covers(self, executor: str, sequence: int) -> bool:
        """Return whether a decision is learned: it, or a later one of its executor."""
        return sequence <= self.last.get(executor, 0)

    def cover(self, executor: str, sequence: int) -> None:
        """Note that a decision is learned."""
        self.last.pop(executor, None)
        self.last[executor] = sequence
        before = len(self.last)
        evict_oldest(self.last, MOST_EXECUTORS)
        self.evicted += before - len(self.last)

    def served(self) -> tuple[dict[str, int], bool]:
        """Return the last sequence of those that learned lately, and whether these are all."""
        lately = islice(reversed(self.last.items()), MOST_SERVED)
        return dict(lately), not self.evicted and len(self.last) <= MOST_SERVED

    def parts(self) -> list[Any]:
        """Return the state, for JSON."""
        return [self.evicted, self.last]

    def read(self, parts: list[Any]) -> None:
        """Put back what `parts()` gave."""
        self.evicted, self.last = parts
