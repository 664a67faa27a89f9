"""Judges all episodes from time to time: which are quarantined, one tenant a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from psycopg import AsyncConnection

from agents.memory.busy_rows import BUSY, reason_of
from memory.store.limits import WriteLimits
from memory.store.quarantine import QuarantineSweep, count_quarantined

log = structlog.get_logger()

FIRST_S: Final = 300.0
"""Time after the start of the worker: a backlog goes first."""
EVERY_S: Final = 3_600.0
COUNT_S: Final = 60.0
"""How often quarantined episodes are counted."""


class Quarantining:
    """Begins a sweep every hour: imports, other limits, workers that stored side by side."""

    def __init__(
        self,
        limits: WriteLimits,
        first_s: float = FIRST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: monotonic, in seconds."""
        self.total = 0
        """Episodes that are quarantined, when last counted."""
        self.released = 0
        """Episodes that sweeps have released: they have no vectors yet."""
        self._limits, self._clock = limits, clock
        self._next, self._count_at = clock() + first_s, float("-inf")
        self._sweep: QuarantineSweep | None = None

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Do what is due; return whether it should go on at once. Raises psycopg's errors."""
        now = self._clock()
        if now >= self._count_at:
            self.total, self._count_at = await count_quarantined(connection), now + COUNT_S
        if self._sweep is None and now < self._next:
            return False
        sweep = self._sweep = self._sweep or QuarantineSweep(self._limits)
        try:
            more = await sweep.step(connection)
        except BUSY as error:
            log.warning("memory.quarantine_postponed", reason=reason_of(error))
            more = False
        if not more:
            self._end(sweep)
        return more

    def _end(self, sweep: QuarantineSweep) -> None:
        self._sweep, self._next = None, self._clock() + EVERY_S
        self.released += sweep.released
        if sweep.quarantined or sweep.released:
            self._count_at = float("-inf")
            log.warning("memory.quarantined", episodes=sweep.quarantined, released=sweep.released)
