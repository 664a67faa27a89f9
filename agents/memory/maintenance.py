"""The daily maintenance of the memory: consolidates, then prunes, one bounded transaction a step.

When it has last ended is in the database, so a restart does not repeat it, and of several workers
one does it. Two that begin together leave each other's rows out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from psycopg import AsyncConnection, errors

from agents.memory.busy_rows import BUSY, reason_of
from agents.memory.packing import PACK_AFTER_DAYS
from memory.store.limits import RetentionLimits
from memory.store.maintenance import EVERY_S, last_finished, note_finished, oldest_packed_s
from memory.store.merging import ConsolidationSweep
from memory.store.pruning import PruneSweep

log = structlog.get_logger()

FIRST_S: Final = 900.0
"""Time after the start of the worker: cold runs are packed before."""
CHECK_S: Final = 600.0
"""How often the database is asked whether the maintenance is due."""
_BUSY: Final = (*BUSY, errors.LockNotAvailable)
"""Other work is done on the same rows, or a long query reads a partition: tried again later."""


class MemoryMaintenance:
    """Begins both tasks when the last time is a day ago."""

    def __init__(
        self,
        limits: RetentionLimits,
        first_s: float = FIRST_S,
        clock: Callable[[], float] = time.monotonic,
        pruned: Callable[[], None] = lambda: None,
    ) -> None:
        """`clock`: monotonic, in seconds. `pruned`: called when both tasks have ended."""
        self.merged = self.cases = self.events = 0
        """Runs merged, cases and packed events deleted since the worker began."""
        self.age_s = 0.0
        """Seconds since the last consolidation ended, or for which runs wait for the first, when
        last asked; 0: not known."""
        self._limits, self._clock, self._pruned = limits, clock, pruned
        self._next = clock() + first_s
        self._sweep: ConsolidationSweep | PruneSweep | None = None

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Do what is due; return whether it should go on at once. Raises psycopg's errors."""
        if self._sweep is None and (
            self._clock() < self._next or not await self._is_due(connection)
        ):
            return False
        sweep = self._sweep = self._sweep or ConsolidationSweep()
        try:
            more = await self._advance(sweep, connection)
        except _BUSY as error:
            log.warning("memory.maintenance_postponed", reason=reason_of(error))
            self._sweep = None
            return False
        if not more:
            await self._end(sweep, connection)
        return self._sweep is not None

    async def _is_due(self, connection: AsyncConnection[Any]) -> bool:
        self._next = self._clock() + CHECK_S
        ages = [await last_finished(connection, task) for task in ("consolidate", "prune")]
        self.age_s = ages[0].age_s if ages[0] is not None else await _waiting_s(connection)
        return any(age is None or age.age_s >= EVERY_S for age in ages)

    async def _advance(
        self, sweep: ConsolidationSweep | PruneSweep, connection: AsyncConnection[Any]
    ) -> bool:
        if isinstance(sweep, ConsolidationSweep):
            before = sweep.merged
            more = await sweep.step(connection)
            self.merged += sweep.merged - before
            return more
        cases, events = sweep.cases, sweep.events
        more = await sweep.step(connection)
        self.cases += sweep.cases - cases
        self.events += sweep.events - events
        return more

    async def _end(
        self, sweep: ConsolidationSweep | PruneSweep, connection: AsyncConnection[Any]
    ) -> None:
        if isinstance(sweep, ConsolidationSweep):
            await note_finished(connection, "consolidate", sweep.counts)
            self.age_s, self._sweep = 0.0, PruneSweep(self._limits)
            log.info("memory.consolidated", **sweep.counts)
        else:
            await note_finished(connection, "prune", sweep.counts, sweep.horizon)
            self._sweep = None
            log.info("memory.pruned", **sweep.counts)
            self._pruned()


async def _waiting_s(connection: AsyncConnection[Any]) -> float:
    """Return for how many seconds packed runs wait for a first consolidation."""
    return max(0.0, await oldest_packed_s(connection) - PACK_AFTER_DAYS * EVERY_S)
