"""One partition under one assignment: applies its batches and writes its checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from faust.types import TP

from agents.consumer.partition_queue import PartitionQueue
from agents.health.metrics import started
from agents.thresholds.checkpoint_buffer import CheckpointBuffer, UnpublishedAnswers, is_backlog
from agents.thresholds.checkpoint_targets import PartitionTargets
from agents.thresholds.checkpoint_writer import CheckpointWriter
from agents.thresholds.rebuild import apply_rebuild
from agents.thresholds.redis_publishing import PartitionPublisher
from agents.thresholds.services import PartitionServices
from agents.thresholds.sound_clock import ClockSchedule
from processing.control.default_merging import DefaultMerger, EvidenceCollector
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import Slice
from processing.state.tombstones import Tombstones
from processing.task import PartitionTask


class OwnedPartition:
    """Applies batches in order and writes what follows from them."""

    def __init__(
        self,
        tp: TP,
        services: PartitionServices,
        complete_from: int,
        share: int,
        publish_soon: Callable[[OwnedPartition], None],
    ) -> None:
        """`complete_from`: see `CheckpointWriter`. `share`: bytes that may wait.

        `publish_soon`: see `EarlyPublisher`.
        """
        self.tp, self.partition = tp, tp.partition
        self._services, self._store, self._publish_soon = services, services.store, publish_soon
        self._now_s, self._tuning = services.env.clock.monotonic_s, services.env.tuning
        self.publisher = PartitionPublisher(services.publish_queue)
        self.targets = PartitionTargets(tp, services, self.publisher)
        held = self._store.held_offset(tp.partition)
        self.writer = CheckpointWriter(self.targets, 0 if held is None else held + 1, complete_from)
        self._tombstones = Tombstones(
            self._tuning.delete_after_s, self._tuning.delete_starts_after_s
        )
        self.core, self.evidence, self.merger = self._new()
        self.clock_schedule = ClockSchedule()
        self._buffer: CheckpointBuffer | None = None
        """What is applied and in no checkpoint yet."""
        self._rows = 0
        """Rows of the table, when they were last counted."""
        pause = services.app.consumer.pause
        name = f"thresholds-{tp.partition}"
        self.queue = PartitionQueue(
            name, self._handle, pause=pause, share=share, on_error=services.env.exit
        )

    def _new(self) -> tuple[PartitionTask, EvidenceCollector, DefaultMerger | None]:
        """Return what takes the table's rows; the owner of partition 0 merges defaults."""
        policy, new_id = self._services.rules.policy, self._services.env.clock.new_id
        reports = self._now_s, new_id, self._tuning.reports
        evidence = EvidenceCollector(self.partition, *reports)
        merger = None if self.partition else DefaultMerger(policy, *reports)
        return self._services.new_core(self.partition), evidence, merger

    async def restore(self) -> None:
        """Read the table's rows, also after they were replaced. Raises `RowAhead`."""
        (core, evidence, merger), count = self._new(), 0
        async for rows in self._store.scan_chunks(self.partition):
            count += len(rows)
            core.restore_some(rows)
            self._note(rows, evidence, merger)
        core.check_restored()
        evidence.restored()
        # Not before: evidence that is sent meanwhile must not follow from half a table.
        self.core, self.evidence, self.merger, self._rows = core, evidence, merger, count

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> float | None:
        """Apply batches; return for how many seconds the checkpoint waits, None: it is written."""
        for _tp, batch in batches:
            if batch.prefetched is not None:
                await asyncio.wrap_future(batch.prefetched)
            # Without records it only moves the offset: an empty checkpoint would be a row.
            if batch and not await self._apply(batch):
                return None  # the partition is another process's now
            self.targets.reached = batch.end
        if self._buffer is None:
            self._pass_holes()
            return None
        if batches and (left := await self._wait_s(self._buffer, is_backlog(batches[-1][1]))):
            return left
        await self._write_checkpoint(self._buffer)
        return None

    def _pass_holes(self) -> None:
        """Let offsets without records be committed: markers, aborted or compacted records.

        Not the applied offset, which follows from records: a restart begins at the holes again.
        """
        targets = self.targets
        if targets.done_to < targets.reached and targets.current():
            targets.done(targets.reached)

    async def _wait_s(self, buffer: CheckpointBuffer, backlog: bool) -> float:
        """Return for how long the checkpoint may take in more fetches, 0: not at all."""
        left = buffer.remaining_s(asyncio.get_running_loop().time(), backlog=backlog)
        if not left or not self.core.has_room() or (backlog and self.core.is_dense()):
            return 0.0
        buffer.release_records()
        if backlog:
            await asyncio.sleep(0)  # let other partitions run
        else:
            self._publish_soon(self)
        return left

    def take_answers(self) -> UnpublishedAnswers:
        """Return what changed since the last call, to be published ahead of its rows."""
        applied = None if self._buffer is None else self._buffer.take_unpublished()
        answers = self.core.answers()
        return UnpublishedAnswers(answers if self.targets.current() else (), applied)

    def note_published(self, answers: UnpublishedAnswers) -> None:
        """Count when readers may see the answers."""
        if answers.applied is not None:
            self._services.counts.observe_effect(*answers.applied)

    async def _apply(self, batch: RecordBatch) -> bool:
        """Apply a batch, with checkpoints in between; return False where the partition is lost."""
        position = 0
        while True:
            begun = started()
            if self._buffer is None:
                now_s = asyncio.get_running_loop().time()
                self._buffer = CheckpointBuffer(self._services.dlq_guard, self._tuning, now_s)
            begin, position = position, self.core.apply(batch, position)
            self._buffer.add(Slice(batch, begin, position), begun)
            if position >= len(batch) and self.core.pending_rebuild is None:
                return True
            await self._write_checkpoint(self._buffer)
            if self.core.pending_rebuild is not None:
                if await apply_rebuild(self.core, self.writer, self.targets, self._services):
                    await self.restore()
                if self.core.pending_rebuild is not None:
                    return False
            if position >= len(batch):
                return True

    async def _write_checkpoint(self, buffer: CheckpointBuffer) -> None:
        """Write what was applied, unless too much of it is refused."""
        checkpoint, counts = self.core.commit(), self._services.counts
        buffer.check(checkpoint.dead_letters)
        await self.writer.write(checkpoint)
        counts.rows += len(checkpoint.rows)
        counts.dead_letters += len(checkpoint.dead_letters)
        buffer.committed(counts, checkpoint.events)
        self._buffer = None
        self._note(checkpoint.rows, self.evidence, self.merger)

    def _note(
        self,
        rows: Sequence[tuple[bytes, bytes]],
        evidence: EvidenceCollector,
        merger: DefaultMerger | None,
    ) -> None:
        self._tombstones.add(rows, self._now_s())
        evidence.note(rows)
        if merger is not None:
            merger.note(rows)

    async def tidy(self, changelog_end: int) -> None:
        """Supersede stale rows that others appended; delete rows whose markers have expired.

        Append all rows again where much was appended since that was last done.
        """
        await self.writer.check_changelog(changelog_end)
        appended = changelog_end - self.writer.complete_from
        if appended > max(self._tuning.rewrite_after, self._tuning.rewrite_factor * self._rows):
            await self.writer.rewrite(self._keys())
        due = self._tombstones.due(self._now_s())
        if due and not await self.writer.delete_expired(due):
            self._tombstones.add(due, self._now_s())

    async def _keys(self) -> AsyncIterator[list[bytes]]:
        self._rows = 0
        async for rows in self._store.scan_chunks(self.partition):
            self._rows += len(rows)
            yield [key for key, _row in rows]
