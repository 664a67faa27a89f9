"""Packs cold runs from time to time, one bounded transaction a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from psycopg import AsyncConnection

from agents.memory.busy_rows import BUSY, reason_of
from sinks.postgres.packing.sweep import PackSweep
from sinks.postgres.packing.writing import RowsChanged

log = structlog.get_logger()

PACK_AFTER_DAYS: Final = 7.0
FIRST_S: Final = 600.0
"""Time after the start of the worker: a backlog, and what a restart is for, go first."""
EVERY_S: Final = 3_600.0
_DAY_S: Final = 86_400.0
_BUSY: Final = (*BUSY, RowsChanged)
"""Other work is done on the same rows: the next sweep packs what is left."""


class RunPacking:
    """Begins a sweep every hour. `after_days`: age of the last event of a run; 0: never."""

    def __init__(
        self,
        after_days: float = PACK_AFTER_DAYS,
        first_s: float = FIRST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: monotonic, in seconds."""
        self.runs = 0
        """Runs that were packed since the worker began."""
        self._cold_s, self._clock = after_days * _DAY_S, clock
        self._next = clock() + first_s
        self._sweep: PackSweep | None = None

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Do what is due; return whether it should go on at once. Raises psycopg's errors."""
        if not self._cold_s or (self._sweep is None and self._clock() < self._next):
            return False
        if self._sweep is None:
            self._sweep = PackSweep(self._cold_s)
        sweep, before = self._sweep, self._sweep.runs
        try:
            more = await sweep.step(connection)
        except _BUSY as error:
            log.warning("memory.pack_postponed", reason=reason_of(error))
            more = False
        self.runs += sweep.runs - before
        if not more:
            self._end(sweep)
        return more

    def _end(self, sweep: PackSweep) -> None:
        self._sweep, self._next = None, self._clock() + EVERY_S
        for reason in sweep.damaged:
            log.error("memory.trace_damaged", reason=reason)
        if sweep.runs:
            log.info(
                "memory.packed", runs=sweep.runs, events=sweep.events,
                bytes_before=sweep.bytes_before, bytes_after=sweep.bytes_after,
            )  # fmt: skip
