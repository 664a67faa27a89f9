"""A lane: one FIFO and one task, in which batches take effect strictly one after the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog
from faust.types import TP

from processing.records import RecordBatch

MAX_WAITING_RECORDS: Final = 40_000
"""Records that may wait in one lane before the fetch loop has to."""
MAX_STEP_RECORDS: Final = 10_000
"""Records handed over in one step: bounds how long the event loop is held."""

log = structlog.get_logger()


class Lane:
    """Feeds batches, in order, to one coroutine; any error ends the process.

    State is only ever changed by what the log and the table hold, so ending is always safe and a
    supervisor starts again; going on after an error would not be.
    """

    def __init__(
        self, name: str, handle: Callable[[list[tuple[TP, RecordBatch]]], Awaitable[None]]
    ) -> None:
        self._name = name
        self._handle = handle
        self._waiting: list[tuple[TP, RecordBatch]] = []
        self._records = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._run(), name=name)

    async def put(self, tp: TP, batch: RecordBatch) -> None:
        """Append a batch; waits while the lane is full."""
        await self._room.wait()
        self._waiting.append((tp, batch))
        self._records += len(batch)
        self._arrived.set()
        if self._records >= MAX_WAITING_RECORDS:
            self._room.clear()

    async def close(self, timeout_s: float = 8.0) -> None:
        """Drop what waits, let the step in flight finish, end the task."""
        self._waiting.clear()
        self._records = 0
        self._room.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def _take(self) -> list[tuple[TP, RecordBatch]]:
        taken, count = [], 0
        while self._waiting and count < MAX_STEP_RECORDS:
            taken.append(self._waiting.pop(0))
            count += len(taken[-1][1])
        self._records -= count
        if self._records < MAX_WAITING_RECORDS:
            self._room.set()
        if not self._waiting:
            self._arrived.clear()
        return taken

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._idle.clear()
            try:
                await self._handle(self._take())
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                end_process(self._name, error)
            finally:
                self._idle.set()


def end_process(where: str, error: BaseException) -> None:
    """Log an error and end the process at once, without any clean-up that could write."""
    log.error("worker.ends", where=where, error=repr(error), exc_info=error)
    os._exit(70)  # EX_SOFTWARE
