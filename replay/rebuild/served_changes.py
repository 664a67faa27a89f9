"""What a rebuild would change of what is served: each context before and after. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import CONTEXT
from replay.log.live_table import Rows

MOST_KEPT: Final = 20
"""Moves kept, the largest; all are counted."""


class ThresholdChange(NamedTuple):
    """One context whose answer changes. None: it has none before, or after."""

    tenant: str
    path: str
    before: float | None
    after: float | None
    outcomes: int
    learner: str

    @property
    def size(self) -> float:
        """By how much; 1 for one that comes or goes."""
        if self.before is None or self.after is None:
            return 1.0
        return abs(self.after - self.before)


def moves(live: Rows, rebuilt: Rows) -> Iterator[ThresholdChange]:
    """Yield the contexts whose `speculate` threshold differs, both tables without deleted rows."""
    for key in live.keys() | rebuilt.keys():
        if key[:1] != CONTEXT or live.get(key) == rebuilt.get(key):
            continue
        before, after = (
            threshold_from_row(key, row) if (row := rows.get(key)) is not None else None
            for rows in (live, rebuilt)
        )
        said = after or before
        assert said is not None
        move = ThresholdChange(
            said.tenant,
            said.path,
            before.speculate if before else None,
            after.speculate if after else None,
            said.outcomes,
            said.learner,
        )
        if move.size:
            yield move


class LargestChanges:
    """All moves, counted, and the largest of them."""

    def __init__(self) -> None:
        self.count = 0
        self.largest: list[ThresholdChange] = []

    def add(self, live: Rows, rebuilt: Rows) -> None:
        """Take in those of one partition."""
        found = list(moves(live, rebuilt))
        self.count += len(found)
        self.largest = heapq.nlargest(
            MOST_KEPT, [*self.largest, *found], key=lambda each: (each.size, each.tenant, each.path)
        )

    def shown(self) -> list[Mapping[str, object]]:
        """Return the largest as plain values."""
        return [each._asdict() for each in self.largest]
