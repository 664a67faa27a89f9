"""What one partition has applied since its last commit: of a backlog, several fetches.

Where every fetch touches most contexts, every commit has a row of most; and a row costs as much as
ten events. Nobody waits for a backlog, so a commit may take in more of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from agents.metrics import started
from agents.refusals import RefusalGuard
from processing.dead_letters import DeadLetter
from processing.records import RecordBatch
from processing.refusals import Extent, RefusalState, Slice, extent

LONGEST_S: Final = 2.0
"""How long a commit takes in more: what is not committed is done again after a kill."""


class Gathered:
    """The records of the next commit: those that may be refused, and how many others."""

    def __init__(self, guard: RefusalGuard) -> None:
        self._guard = guard
        self._begin()

    def _begin(self) -> None:
        self._parts: list[Slice] = []
        self._checked: dict[int, RefusalState] = {}
        self._before = Extent()
        self._begun = self._until = 0.0

    def __bool__(self) -> bool:
        return bool(self._parts) or self._before.records > 0

    def start(self) -> None:
        """Note that something is about to be applied."""
        if not self:
            self._begun = started()
            self._until = asyncio.get_running_loop().time() + LONGEST_S

    def add(self, part: Slice) -> None:
        """Note what was applied."""
        self._parts.append(part)

    def goes_on(self, batch: RecordBatch) -> bool:
        """Return whether the log has as much again as `batch` at the least, and time is left."""
        return batch.behind >= len(batch) and asyncio.get_running_loop().time() < self._until

    def let_go(self) -> None:
        """Keep the records no longer: none of those applied until now is refused."""
        self.check(())
        self._before = extent(self._parts, self._before)
        self._parts = []

    def check(self, letters: Sequence[DeadLetter]) -> None:
        """Raise `RefusalLimitExceeded` where, with `letters`, too much is refused."""
        self._checked = self._guard.check(self._parts, letters, self._checked)

    def passed(self) -> tuple[Extent, float]:
        """Note that all of it took effect; return how much it was, and `started()` before it."""
        self._guard.passed(self._checked)
        found = extent(self._parts, self._before), self._begun
        self._begin()
        return found
