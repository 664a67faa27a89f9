"""What one partition has applied since its last commit: several fetches.

A row costs as much as ten events, and what one fetch touches the next one mostly touches again.
Nobody waits for rows: what contexts answer is published before them. Nobody waits for a backlog at
all: what it would publish is overtaken at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from agents.dlq_limit_guard import DlqLimitGuard
from agents.health.metrics import WorkerCounts, started
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter
from processing.records.dlq_limits import BatchExtent, RefusalState, Slice, extent

LONGEST_S: Final = 0.25
"""How long a commit takes in more: what is not committed is done again after a kill."""
LONGEST_OF_BACKLOG_S: Final = 2.0
"""The same of a backlog."""
MORE_S: Final = 0.5
"""How long at the most it waits for more that does not come."""


class CheckpointBuffer:
    """The records of the next commit: those that may be refused, and how many others."""

    def __init__(self, guard: DlqLimitGuard) -> None:
        self._guard = guard
        self._telling: tuple[BatchExtent, float] | None = None
        self._begin()

    def _begin(self) -> None:
        self._parts: list[Slice] = []
        self._checked: dict[int, RefusalState] = {}
        self._before = BatchExtent()
        self._since = 0.0
        self._begun: float | None = None

    def __bool__(self) -> bool:
        return bool(self._parts) or self._before.records > 0

    def start(self) -> None:
        """Note that something is about to be applied."""
        if self._begun is None:
            self._begun = started()
        if not self:
            self._since = asyncio.get_running_loop().time()

    def add(self, part: Slice) -> None:
        """Note what was applied."""
        self._parts.append(part)

    def left(self, *, backlog: bool) -> float:
        """Return how long it may wait for more, in seconds."""
        longest = LONGEST_OF_BACKLOG_S if backlog else LONGEST_S
        left = self._since + longest - asyncio.get_running_loop().time()
        return max(0.0, min(left, MORE_S))

    def release_records(self) -> None:
        """Keep the records no longer: none of those applied until now is refused."""
        self.check(())
        self._fold()

    def _fold(self) -> None:
        self._before, self._parts = extent(self._parts, self._before), []

    def check(self, letters: Sequence[DeadLetter]) -> None:
        """Raise `RefusalLimitExceeded` where, with `letters`, too much is refused."""
        self._checked = self._guard.check(self._parts, letters, self._checked)

    def tell(self) -> None:
        """Note that what was let go is being published."""
        if self._begun is not None:
            self._telling, self._begun = (self._before, self._begun), None

    def told(self, counts: WorkerCounts) -> None:
        """Have it counted that readers may see what was being published."""
        if self._telling is not None:
            counts.took_effect(*self._telling)
            self._telling = None

    def passed(self, counts: WorkerCounts, events: int) -> None:
        """Note, and have it counted, that all of it is committed, which held so many events."""
        self._guard.passed(self._checked)
        self.told(counts)
        self._fold()
        self.tell()
        self.told(counts)
        counts.took(self._before, events)
        self._begin()


def of_backlog(batch: RecordBatch) -> bool:
    """Return whether the log has as much again as a fetch of it at the least."""
    return batch.lag >= max(1, len(batch))
