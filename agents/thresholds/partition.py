"""One partition under one assignment: the core, and where its commits go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Final

import msgspec
from faust.types import TP

from agents.consumer.partition_queue import PartitionQueue
from agents.thresholds.checkpoint_buffer import CheckpointBuffer, of_backlog
from agents.thresholds.checkpoint_writer import CheckpointWriter, Row
from agents.thresholds.completeness import completeness
from agents.thresholds.pacing import in_chunks
from agents.thresholds.rebuild import apply_rebuild
from agents.thresholds.services import PartitionServices
from agents.thresholds.sound_clock import ClockSchedule
from headstart.keys import threshold_key
from processing.contexts.thresholds import threshold_from_row
from processing.control.default_merging import DefaultMerger, EvidenceCollector
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter
from processing.records.dlq_limits import Slice
from processing.state.chunking import chunk_rows
from processing.state.rows import CONTEXT
from processing.state.tombstones import Tombstones
from processing.task import PartitionTask
from topics.catalogue import CHANGELOG, THRESHOLDS
from topics.kafka.reader import read_records
from topics.schema.json_schema import PublishedThreshold

ANNOUNCED_BYTES: Final = THRESHOLDS.max_record_bytes - 65_536
"""Keeps a batch of thresholds below the topic's record batch limit."""
REWRITE_AFTER: Final = 20_000
"""Records of the changelog after which the table is rewritten, where it is small: read in .1 s."""
REWRITE_FACTOR: Final = 4
"""The same where it is large, in its rows: a quarter more to append, four times less to restore
than compaction would ever leave."""
_encode = msgspec.json.Encoder().encode


class OwnedPartition:
    """Applies batches, in order, and delivers what comes of them; the `Outlets` of its commits."""

    def __init__(self, tp: TP, services: PartitionServices, complete_from: int, share: int) -> None:
        """`complete_from`: see `CheckpointWriter`. `share`: bytes that may wait."""
        self.partition = tp.partition
        self._tp, self._services, self._store = tp, services, services.store
        self._generation = services.app.consumer_generation_id
        held = self._store.held_offset(tp.partition)
        self.delivery = CheckpointWriter(self, 0 if held is None else held + 1, complete_from)
        self._tombstones = Tombstones()
        self.core, self.types, self.merger = self._new()
        self.witness = ClockSchedule()
        self._gathered = CheckpointBuffer(services.guard)
        self._rows = 0
        """Rows of the table, when they were last counted."""
        self._reached = self._told = 0
        """Where the last batch that was applied whole ended, and the offset that was last done."""
        hold = services.app.consumer.hold
        name = f"thresholds-{tp.partition}"
        self.lane = PartitionQueue(name, self._handle, hold=hold, share=share)

    def _new(self) -> tuple[PartitionTask, EvidenceCollector, DefaultMerger | None]:
        """Return what takes up the table's rows; who owns the first partition merges."""
        merger = (
            None if self.partition else DefaultMerger(self._services.rules.policy, time.monotonic)
        )
        types = EvidenceCollector(self.partition, time.monotonic)
        return self._services.new_core(self.partition), types, merger

    async def restore(self) -> None:
        """Take up the table's rows, also where they were replaced. Raises `RowAhead`."""
        (core, types, merger), count = self._new(), 0
        async for rows in in_chunks(self._store.scan(self._tp.partition)):
            count += len(rows)
            core.restore_some(rows)
            self._note(rows, types, merger)
        core.check_restored()
        types.restored()
        # Not before: what others say meanwhile must not follow from half a table.
        self.core, self.types, self.merger, self._rows = core, types, merger, count

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> float | None:
        """Apply batches; return for how long the commit waits for more, None: it is delivered."""
        for _tp, batch in batches:
            if batch.prefetched is not None:
                await asyncio.wrap_future(batch.prefetched)
            # Without records it only moves the offset: a commit of nothing would be a row.
            if batch and not await self._apply(batch):
                return None  # the partition is another process's now
            self._reached = batch.end
        if not self._gathered:
            self._pass_holes()
            return None
        if batches and (left := await self._gather(of_backlog(batches[-1][1]))):
            return left
        await self._deliver()
        return None

    def _pass_holes(self) -> None:
        """Let offsets without records be committed: markers, aborted records, what was compacted.

        Not the applied offset, which follows from the records: a restart begins at the holes again.
        """
        if self._told < self._reached and self.current():
            self.done(self._reached)

    async def _gather(self, backlog: bool) -> float:
        """Leave what was applied to a later commit; return for how long, 0: it must not wait."""
        left = self._gathered.left(backlog=backlog)
        if not left or not self.core.has_room() or (backlog and self.core.is_dense()):
            return 0.0
        self._gathered.release_records()
        if backlog:
            await asyncio.sleep(0)  # others have their turn
        else:
            self._services.publishing.tell(self)
        return left

    def tell(self) -> None:
        """Begin to publish what contexts answer by now, ahead of their rows; see `Telling`."""
        self._gathered.tell()
        self.delivery.publish(self.core.answers())

    async def told(self) -> None:
        """Return when readers may see it."""
        await self.delivery.published()
        self._gathered.told(self._services.counts)

    async def _apply(self, batch: RecordBatch) -> bool:
        """Apply a batch, delivering in between; return whether the partition is still ours."""
        position = 0
        while True:
            self._gathered.start()
            begin, position = position, self.core.apply(batch, position)
            self._gathered.add(Slice(batch, begin, position))
            if position >= len(batch) and self.core.pending_rebuild is None:
                return True
            await self._deliver()
            if self.core.pending_rebuild is not None:
                await apply_rebuild(self, self._services)
                if self.core.pending_rebuild is not None:
                    return False
            if position >= len(batch):
                return True

    async def _deliver(self) -> None:
        """Deliver what has gathered, unless too much of it is refused."""
        commit, counts = self.core.commit(), self._services.counts
        self._gathered.check(commit.dead_letters)
        await self.delivery.deliver(commit)
        counts.rows += len(commit.rows)
        counts.dead_letters += len(commit.dead_letters)
        self._gathered.passed(counts, commit.events)
        self._note(commit.rows, self.types, self.merger)

    def _note(
        self,
        rows: Sequence[tuple[bytes, bytes]],
        types: EvidenceCollector,
        merger: DefaultMerger | None,
    ) -> None:
        self._tombstones.add(rows, time.monotonic())
        types.note(rows)
        if merger is not None:
            merger.note(rows)

    async def tidy(self, changelog_end: int) -> None:
        """Answer what others appended to the changelog; bury rows deleted long ago.

        Where much has been appended since all rows were, append them all again.
        """
        await self.delivery.check_changelog(changelog_end)
        appended = changelog_end - self.delivery.complete_from
        if appended > max(REWRITE_AFTER, REWRITE_FACTOR * self._rows):
            await self.delivery.rewrite(self._keys())
        due = self._tombstones.due(time.monotonic())
        if due and not await self.delivery.bury(due):
            self._tombstones.add(due, time.monotonic())

    async def _keys(self) -> AsyncIterator[list[bytes]]:
        self._rows = 0
        async for rows in in_chunks(self._store.scan(self._tp.partition)):
            self._rows += len(rows)
            yield [key for key, _row in rows]

    def current(self) -> bool:
        """Return whether this process may still write; see `Outlets` for this and the rest."""
        self._services.alive.check()
        return bool(self._generation == self._services.app.consumer_generation_id)

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Send dead letters."""
        await self._services.producer.send_dead_letters(letters)

    async def send_rows(self, rows: Sequence[Row], complete_from: int) -> tuple[int, int]:
        """Append rows to the changelog as one record batch."""
        return await self._services.producer.send_rows(
            CHANGELOG.name, self._tp.partition, rows, [completeness(complete_from)]
        )

    async def changelog(self, begin: int, end: int) -> Sequence[Row]:
        """Read rows back from the changelog."""
        place = self._tp.partition
        kafka = self._services.kafka
        found = read_records(kafka, CHANGELOG.name, {place: begin}, {place: end})
        return [(record.key, record.value) async for record in found]

    def get_row(self, key: bytes) -> bytes | None:
        """Return a row of the local store."""
        return self._store.get_row(self._tp.partition, key)

    def write_rows(self, rows: Sequence[Row], changelog_offset: int | None) -> None:
        """Write rows to the local store."""
        self._store.write_rows(self._tp.partition, rows, changelog_offset)

    def publish(self, thresholds: Sequence[PublishedThreshold]) -> Awaitable[None]:
        """Publish to Redis, now or later."""
        return self._services.publishing.publish(thresholds)

    async def produce_thresholds(self, moved: Sequence[PublishedThreshold]) -> None:
        """Append changed thresholds to the compacted topic, in the partition of their events."""
        await self._send_thresholds([(threshold_key(t.tenant, t.path), _encode(t)) for t in moved])

    async def announce_rows(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append to the compacted topic what rows answer, of those that are served."""
        await self.produce_thresholds(self._services.stored(self.partition, rows))

    async def delete_published(self, markers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Have contexts that are gone forgotten where they are served; False: Redis is away."""
        gone = [threshold_from_row(key, row) for key, row in markers if key.startswith(CONTEXT)]
        if gone and not await self._services.publishing.bury(gone):
            return False
        await self._send_thresholds([(threshold_key(t.tenant, t.path), None) for t in gone])
        return True

    async def _send_thresholds(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        for part in chunk_rows(rows, ANNOUNCED_BYTES):
            await self._services.producer.send_rows(THRESHOLDS.name, self._tp.partition, part)

    def done(self, end: int) -> None:
        """Let `end` be committed, unless something waits for Redis.

        That is lost with this process; the committed offset then tells the next owner from where on
        to publish again, so it must not pass what waits.
        """
        self._told = end = max(end, self._reached)
        self._services.app.consumer.done(self._tp, end, commit=not self._services.publishing.behind)
