"""The thresholds that a rebuild would change: each context before and after. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import CONTEXT
from replay.log.live_table import Rows

MOST_KEPT: Final = 20
"""Number of changes kept, the largest ones; all are counted."""


class ThresholdChange(NamedTuple):
    """A context whose threshold changes. None: the context does not exist before, or after."""

    tenant: str
    path: str
    before: float | None
    after: float | None
    outcomes: int
    learner: str

    @property
    def size(self) -> float:
        """Absolute difference; 1 for a context that is added or removed."""
        if self.before is None or self.after is None:
            return 1.0
        return abs(self.after - self.before)


def changed_thresholds(live: Rows, rebuilt: Rows) -> Iterator[ThresholdChange]:
    """Yield the contexts whose `speculate` threshold differs, both tables without deleted rows."""
    for key in live.keys() | rebuilt.keys():
        if key[:1] != CONTEXT or live.get(key) == rebuilt.get(key):
            continue
        before, after = (
            threshold_from_row(key, row) if (row := rows.get(key)) is not None else None
            for rows in (live, rebuilt)
        )
        known = after or before
        assert known is not None
        change = ThresholdChange(
            known.tenant,
            known.path,
            before.speculate if before else None,
            after.speculate if after else None,
            known.outcomes,
            known.learner,
        )
        if change.size:
            yield change


class LargestChanges:
    """Counts all changes and keeps the largest."""

    def __init__(self) -> None:
        self.count = 0
        self.largest: list[ThresholdChange] = []

    def add(self, live: Rows, rebuilt: Rows) -> None:
        """Add the changes of one partition."""
        found = list(changed_thresholds(live, rebuilt))
        self.count += len(found)
        self.largest = heapq.nlargest(
            MOST_KEPT, [*self.largest, *found], key=lambda each: (each.size, each.tenant, each.path)
        )

    def shown(self) -> list[Mapping[str, object]]:
        """Return the largest as plain values."""
        return [each._asdict() for each in self.largest]
