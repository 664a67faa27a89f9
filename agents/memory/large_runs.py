"""Postpones runs of very many events: to assemble one reads all of its events again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from memory.episodes.record import Episode
from memory.store.outbox import RunKey

LARGE: Final = 5_000
"""Events from which on a run is postponed."""
_S_PER_EVENT: Final = 0.001
"""Ten to twenty times what assembling one takes, so that other runs have most of the time."""
LONGEST_S: Final = 50.0
"""Less than what `headstart doctor` calls late."""


class LargeRuns:
    """The large runs that were assembled a short time ago, and are not taken again yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[RunKey, float] = {}

    def note(self, assembled: Iterable[Episode]) -> None:
        """Postpone the large ones of these episodes; a larger one for longer."""
        now = self._clock()
        for each in assembled:
            if each.events >= LARGE:
                wait_s = min(LONGEST_S, each.events * _S_PER_EVENT)
                self._due[RunKey(each.tenant, each.workflow_id)] = now + wait_s

    def postponed(self) -> list[RunKey]:
        """Return the runs that are not to be taken now."""
        now = self._clock()
        self._due = {run: due for run, due in self._due.items() if due > now}
        return list(self._due)
