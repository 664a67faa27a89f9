"""Takes the fetched batches of one assignment, each once and in order, into one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from faust.types import TP

from agents.consumer.partition_queue import PartitionQueue, queue_bytes_per_partition
from agents.consumer.sequencer import FetchSequencer, FetchSource
from processing.records.batch import RecordBatch, empty_batch


class PausableSource(FetchSource[TP], Protocol):
    """A consumer, as far as an intake uses it."""

    def pause(self, tp: TP, paused: bool, /) -> None:
        """Pause or resume a partition."""
        ...


class BatchIntake:
    """Opened by each assignment, and closed by each revocation; in between it takes batches.

    `handle`: as of a `PartitionQueue`. `on_lost`: see `FetchSequencer`; `handle` gets an empty
    batch after it, so that the offset that follows is stored. `on_error`: called with the group and
    an error of `handle`.
    """

    def __init__(
        self,
        group: str,
        handle: Callable[[list[tuple[TP, RecordBatch]]], Awaitable[float | None]],
        linger_s: float = 0.0,
        *,
        on_lost: Callable[[TP, range], Awaitable[None]],
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        self._group, self._handle, self._linger_s = group, handle, linger_s
        self._on_lost, self._on_error = on_lost, on_error
        self._queue: PartitionQueue | None = None
        self._sequencer: FetchSequencer[TP] | None = None
        self._generation = -1

    def open(
        self,
        source: PausableSource,
        generation: int,
        begin: Mapping[TP, int],
        *,
        holes_are_real: bool,
    ) -> None:
        """Begin an assignment.

        `generation`: of the consumer group; batches of another are dropped. `begin`: the first
        offset of each partition. `holes_are_real`: see `OffsetTracker`.
        """
        self._sequencer = FetchSequencer(
            source, self._group, begin, holes_are_real=holes_are_real, on_lost=self._skip
        )
        self._generation = generation
        self._queue = PartitionQueue(
            self._group, self._handle, self._linger_s, pause=source.pause,
            share=queue_bytes_per_partition(len(begin)), on_error=self._on_error,
        )  # fmt: skip

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch if it is the next one of its partition."""
        queue, sequencer = self._queue, self._sequencer
        if queue is None or sequencer is None or generation != self._generation:
            return
        if await sequencer.admit(tp, batch):
            await queue.put(tp, batch)

    async def _skip(self, tp: TP, lost: range) -> None:
        """Report lost offsets; then queue a batch without records that ends after them.

        Otherwise each restart would begin at them again, and report them again.
        """
        await self._on_lost(tp, lost)
        if self._queue is not None:
            await self._queue.put(tp, empty_batch(tp.topic, tp.partition, lost.stop))

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition if nothing waits or is in flight."""
        if self._queue is None or self._sequencer is None or not self._queue.idle:
            return {}
        return self._sequencer.positions.copy()

    async def skip_lost(self) -> None:
        """Begin each partition where the log now begins, if that is later; report what is lost."""
        if self._sequencer is not None:
            for tp in self._sequencer.positions.copy():
                await self._sequencer.skip_lost(tp)

    async def close(self, within_s: float) -> None:
        """Finish the step in flight, within that many seconds, and drop what waits."""
        queue, self._queue = self._queue, None
        if queue is None:
            return
        try:
            await queue.close(within_s)
        except asyncio.CancelledError:
            self._queue = queue  # the next call finishes it
            raise
