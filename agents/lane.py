"""A lane: one FIFO and one task, in which batches take effect strictly one after the other."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog
from faust.types import TP

from processing.records import RecordBatch
from processing.refusals import EXIT_CODE, RefusalLimitExceeded

MAX_WAITING_BYTES: Final = 8_000_000
"""Record values that may wait in one lane before the fetch loop has to."""
MAX_STEP_BYTES: Final = 4_000_000
"""Record values handed over in one step: bounds how long the event loop is held."""

log = structlog.get_logger()


class Lane:
    """Feeds batches, in order, to one coroutine; any error ends the process.

    State is only ever changed by what the log and the table hold, so ending is always safe and a
    supervisor starts again; going on after an error would not be.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[list[tuple[TP, RecordBatch]]], Awaitable[None]],
        linger_s: float = 0.0,
    ) -> None:
        """`linger_s`: how long a step waits for more, unless it is full already."""
        self._name = name
        self._handle = handle
        self._linger_s = linger_s
        self._waiting: deque[tuple[TP, RecordBatch, int]] = deque()
        """With the bytes of each, which take long to count."""
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._task = asyncio.create_task(self._run(), name=name)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._waiting and self._idle.is_set()

    async def put(self, tp: TP, batch: RecordBatch) -> None:
        """Append a batch; waits while the lane is full. A closed lane drops it."""
        await self._room.wait()
        if self._closed:
            return
        size = batch.size
        self._waiting.append((tp, batch, size))
        self._bytes += size
        self._arrived.set()
        if self._bytes >= MAX_WAITING_BYTES:
            self._room.clear()

    async def close(self, timeout_s: float = 8.0) -> None:
        """Drop what waits, let the step in flight finish, end the task."""
        self._closed = True
        self._waiting.clear()
        self._bytes = 0
        self._arrived.clear()
        self._room.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def _take(self) -> list[tuple[TP, RecordBatch]]:
        taken, total = list[tuple[TP, RecordBatch]](), 0
        while self._waiting and total < MAX_STEP_BYTES:
            tp, batch, size = self._waiting.popleft()
            taken.append((tp, batch))
            total += size
        self._bytes -= total
        if self._bytes < MAX_WAITING_BYTES:
            self._room.set()
        if not self._waiting:
            self._arrived.clear()
        return taken

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._idle.clear()
            if self._linger_s and self._bytes < MAX_STEP_BYTES:
                await asyncio.sleep(self._linger_s)
            try:
                if taken := self._take():
                    await self._handle(taken)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                end_process(self._name, error)
            finally:
                self._idle.set()


def end_process(where: str, error: BaseException) -> None:
    """Log an error and end the process at once, without any clean-up that could write."""
    if isinstance(error, RefusalLimitExceeded):
        log.error("worker.stops", where=where, reason=str(error))
        os._exit(EXIT_CODE)
    log.error("worker.ends", where=where, error=repr(error), exc_info=error)
    os._exit(70)  # EX_SOFTWARE
