"""A lane: partitions that take turns, one task in which their batches take effect one by one.

A partition that has more waiting than its share is fetched no more until some of it is taken: it
lags, and nobody else does. Its own batches stay in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog
from faust.types import TP

from agents.fatal import exit_fatally
from processing.records.batch import RecordBatch

SHARED_BYTES: Final = 32_000_000
"""Of records that may wait in a worker, of all its partitions together."""
LEAST_SHARE, MOST_SHARE = 1_000_000, 8_000_000
"""Bounds of what one partition may have of them."""
MAX_WAITING_BYTES: Final = 64_000_000
"""Of records in one lane from which on the fetch loop waits: more than what is under way when
partitions are held should ever make."""
MAX_STEP_BYTES: Final = 4_000_000
"""Of records handed over in one step: bounds how long the event loop is held."""

SAME_S: Final = 0.001
"""Moments that are so near count as the same."""

PauseCallback = Callable[[TP, bool], None]
"""Told of a partition whether it is to be fetched no more."""

log = structlog.get_logger()


def queue_bytes_per_partition(partitions: int) -> int:
    """Return the bytes that may wait of each of a worker's partitions."""
    return min(MOST_SHARE, max(LEAST_SHARE, SHARED_BYTES // max(1, partitions)))


class PartitionQueue:
    """Feeds batches to one coroutine, those of a partition in order; any error ends the process.

    State is only ever changed by what the log and the table hold, so ending is always safe and a
    supervisor starts again; going on after an error would not be.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[list[tuple[TP, RecordBatch]]], Awaitable[float | None]],
        linger_s: float = 0.0,
        *,
        hold: PauseCallback = lambda _tp, _full: None,
        share: int = MOST_SHARE,
        on_error: Callable[[str, BaseException], None] = exit_fatally,
    ) -> None:
        """`handle`: returns None, or for how many seconds the step is not finished because more may
        come to it: then it is called again with what comes, or with nothing where nothing does.

        `linger_s`: how long a step waits for more, unless it is full already.

        `share`: bytes of one partition from which on it is held.
        """
        self._name = name
        self._handle = handle
        self._linger_s = linger_s
        self._hold, self._on_error = hold, on_error
        self._share = share
        self._waiting: dict[TP, deque[tuple[RecordBatch, int]]] = {}
        """Batches and their bytes, by partition; whose turn is next comes first."""
        self._of: dict[TP, int] = {}
        """Bytes that wait, by partition."""
        self._held: set[TP] = set()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._reminder: asyncio.TimerHandle | None = None
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
        self._waiting.setdefault(tp, deque()).append((batch, size))
        self._account(tp, size)
        self._arrived.set()

    async def close(self, timeout_s: float = 8.0) -> None:
        """Drop what waits, let the step in flight finish, end the task."""
        self._closed = True
        self._waiting.clear()
        for tp in list(self._of):
            self._account(tp, -self._of[tp])
        self._arrived.set()  # a step that waits for more ends
        self._room.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._remind(None)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def _account(self, tp: TP, size: int) -> None:
        """Note that so many bytes more wait of a partition, and what follows from it."""
        waits = self._of[tp] = self._of.get(tp, 0) + size
        self._bytes += size
        if waits >= self._share and tp not in self._held:
            self._held.add(tp)
            self._hold(tp, True)
        elif waits < self._share and tp in self._held:
            self._held.discard(tp)
            self._hold(tp, False)
        if self._bytes >= MAX_WAITING_BYTES:
            self._room.clear()
        else:
            self._room.set()

    def _take(self) -> list[tuple[TP, RecordBatch]]:
        """Return a step: a batch of each partition in turn, for as long as there is room."""
        taken, size = [], 0
        while self._waiting and size < MAX_STEP_BYTES:
            tp = next(iter(self._waiting))
            queue = self._waiting.pop(tp)
            batch, of_batch = queue.popleft()
            if queue:
                self._waiting[tp] = queue  # behind everybody else
            taken.append((tp, batch))
            size += of_batch
            self._account(tp, -of_batch)
        if not self._waiting:
            self._arrived.clear()
        return taken

    async def _run(self) -> None:
        waits: float | None = None
        while True:
            await self._arrived.wait()
            self._idle.clear()
            if self._linger_s and self._bytes < MAX_STEP_BYTES:
                await asyncio.sleep(self._linger_s)
            try:
                taken = self._take()
                if taken or waits is not None:
                    waits = await self._handle(taken)
                    self._remind(waits)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self._on_error(self._name, error)
            finally:
                if waits is None:
                    self._idle.set()

    def _remind(self, waits: float | None) -> None:
        """See that a step which waits for more goes on in so many seconds, whatever comes.

        Most steps wait until the same moment as the one before.
        """
        loop, reminder = asyncio.get_running_loop(), self._reminder
        at = None if waits is None else loop.time() + waits
        if reminder is not None:
            if at is not None and abs(reminder.when() - at) < SAME_S:
                return
            reminder.cancel()
        self._reminder = None if at is None else loop.call_at(at, self._go_on)

    def _go_on(self) -> None:
        self._reminder = None
        self._arrived.set()
