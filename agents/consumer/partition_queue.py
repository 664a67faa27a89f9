"""A queue of fetched batches in which partitions take turns, emptied by one task.

A partition that has more waiting than its share is paused until some of it is taken: it lags, and
the others do not. The batches of a partition stay in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from faust.types import TP

from agents.fatal import exit_fatally
from processing.records.batch import RecordBatch

SHARED_BYTES: Final = 32_000_000
"""Of records that may wait in a worker, of all its partitions together."""
MIN_SHARE, MAX_SHARE = 1_000_000, 8_000_000
"""Bounds of what one partition may have of them."""
MAX_WAITING_BYTES: Final = 64_000_000
"""Of records in one queue from which on the fetch loop waits: more than what is in flight when
partitions are paused should ever make."""
MAX_STEP_BYTES: Final = 4_000_000
"""Of records handed over in one step: bounds how long the event loop is held."""

SAME_S: Final = 0.001
"""Times this close count as the same."""

PauseCallback = Callable[[TP, bool], None]
"""Called with a partition and whether it is to be paused."""


def queue_bytes_per_partition(partitions: int) -> int:
    """Return the bytes that may wait of each of a worker's partitions."""
    return min(MAX_SHARE, max(MIN_SHARE, SHARED_BYTES // max(1, partitions)))


class PartitionQueue:
    """Feeds batches to one coroutine, those of a partition in order; any error ends the process.

    State is only changed by what the log and the table hold, so ending is always safe, and the
    supervisor starts the worker again; continuing after an error would not be.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[list[tuple[TP, RecordBatch]]], Awaitable[float | None]],
        linger_s: float = 0.0,
        *,
        pause: PauseCallback = lambda _tp, _paused: None,
        share: int = MAX_SHARE,
        on_error: Callable[[str, BaseException], None] = exit_fatally,
    ) -> None:
        """`handle`: returns None, or for how many seconds the step waits for more batches: then it
        is called again with those that come, or with none after that time.

        `linger_s`: how long a step waits for more, unless it is full already.

        `share`: bytes of one partition from which on it is paused.
        """
        self._name, self._handle, self._linger_s = name, handle, linger_s
        self._pause, self._share, self._on_error = pause, share, on_error
        self._waiting: dict[TP, deque[tuple[RecordBatch, int]]] = {}
        """Batches and their bytes, by partition; the next one to be taken from comes first."""
        self._bytes_of: dict[TP, int] = {}
        """Bytes that wait, by partition."""
        self._paused: set[TP] = set()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run(), name=name)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._waiting and self._idle.is_set()

    async def put(self, tp: TP, batch: RecordBatch) -> None:
        """Append a batch; waits while the queue is full. A closed queue drops it."""
        await self._has_room.wait()
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
        for tp in list(self._bytes_of):
            self._account(tp, -self._bytes_of[tp])
        self._arrived.set()  # a step that waits for more ends
        self._has_room.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        self._set_timer(None)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def _account(self, tp: TP, size: int) -> None:
        """Add to the bytes that wait of a partition; pause or resume it."""
        waiting = self._bytes_of[tp] = self._bytes_of.get(tp, 0) + size
        self._bytes += size
        if waiting >= self._share and tp not in self._paused:
            self._paused.add(tp)
            self._pause(tp, True)
        elif waiting < self._share and tp in self._paused:
            self._paused.discard(tp)
            self._pause(tp, False)
        if self._bytes >= MAX_WAITING_BYTES:
            self._has_room.clear()
        else:
            self._has_room.set()

    def _take(self) -> list[tuple[TP, RecordBatch]]:
        """Return a step: a batch of each partition in turn, while there is room."""
        taken, size = [], 0
        while self._waiting and size < MAX_STEP_BYTES:
            tp = next(iter(self._waiting))
            queue = self._waiting.pop(tp)
            batch, batch_bytes = queue.popleft()
            if queue:
                self._waiting[tp] = queue  # behind all others
            taken.append((tp, batch))
            size += batch_bytes
            self._account(tp, -batch_bytes)
        if not self._waiting:
            self._arrived.clear()
        return taken

    async def _run(self) -> None:
        wait_s: float | None = None
        while True:
            await self._arrived.wait()
            self._idle.clear()
            if self._linger_s and self._bytes < MAX_STEP_BYTES:
                await asyncio.sleep(self._linger_s)
            try:
                taken = self._take()
                if taken or wait_s is not None:
                    wait_s = await self._handle(taken)
                    self._set_timer(wait_s)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self._on_error(self._name, error)
            finally:
                if wait_s is None:
                    self._idle.set()

    def _set_timer(self, wait_s: float | None) -> None:
        """Continue a step that waits for more after so many seconds, whatever arrives.

        Most steps wait until the same time as the one before.
        """
        loop, timer = asyncio.get_running_loop(), self._timer
        at = None if wait_s is None else loop.time() + wait_s
        if timer is not None:
            if at is not None and abs(timer.when() - at) < SAME_S:
                return
            timer.cancel()
        self._timer = None if at is None else loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._arrived.set()
