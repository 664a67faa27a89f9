"""One partition of the threshold agent, without its I/O: records in, checkpoints out.

Decodes records, checks that their events belong to the partition, has them applied
(`processing.apply`), and makes dead letters of what is rejected.

State is a pure function of (epoch, prefix of the log): the time comes from the log
(`processing.state.clock`), and no decision depends on where a batch ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headstart.events.frames import MAX_FRAME_BYTES
from processing.apply.control import ControlApplier
from processing.apply.outcome_sink import OutcomeSink
from processing.apply.per_event import EventApplier
from processing.apply.scanned_batch import ScannedBatch
from processing.apply.vectorized import MAX_RUN_COMMIT_BYTES, VectorizedApplier
from processing.config import LearningConfig
from processing.contexts import pending_updates
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.control.messages import read_control
from processing.control.rebuild_state import PASSED
from processing.partition_state import PartitionState
from processing.records.batch import Headers, RecordBatch
from processing.records.dead_letters import DeadLetter, dead_letter
from processing.records.decode import EventBytes, Rejection, decode_record, decode_records
from processing.records.headers import is_for_group, origin_override
from processing.records.partitioner import partition_for
from processing.state.rows import (
    PARTITION_KEY,
    encode_partition,
    is_deleted,
    version,
)
from topics.catalogue import THRESHOLDS_GROUP
from topics.control.messages import Rebuild, is_control
from topics.schema.event_structs import EventFields
from topics.schema.json_schema import PublishedThreshold

COMMIT_BYTES: Final = 4_000_000
"""Size at which a commit ends, at an offset."""
GROWTH: Final = 2.25
"""A record adds to a commit at most so many times its own bytes for each level of contexts,
including the workflow type: an identifier may be in the keys of all, with three bytes for one.
Expired rows come on top, up to `ENDING_BYTES`."""
WITH_NEXT_BYTES: Final = 8_800_000
"""Largest size of a commit with one record more: the changelog takes 10 MB with expired rows."""
GATHER_BYTES: Final = MAX_RUN_COMMIT_BYTES // 2
"""Size of a commit from which on no more batches are added: vectorized runs would hardly fit."""
GATHER_EACH: Final = 16
"""Bytes of rows for each event, below which a commit is dense: some twenty events for each row."""

MOST_LETTERS: Final = 1_000
"""Dead letters at which a commit ends, at a record. A fetch may hold millions: `[1,1,1...]`."""


class RowAhead(RuntimeError):
    """A row is of a later offset than the applied one: part of a checkpoint is missing."""

    def __init__(self, partition: int, key: bytes, offset: int, applied_offset: int) -> None:
        super().__init__(
            f"partition {partition}: the row {key!r} is of offset {offset}, the last applied "
            f"offset is {applied_offset}: the changelog or the local store has lost part of a "
            "commit. Delete this worker's data directory to restore it from the changelog"
        )


@dataclass
class Checkpoint:
    """Everything that changed since the last commit.

    `rows`: for the changelog (one record batch, the partition's row last) and then the local store.
    `thresholds`: of every context touched since `PartitionTask.answers`, for Redis; `moved`: those
    that changed since the last commit, for the compacted topic. `end`: the next offset to apply.
    """

    end: int
    rows: list[tuple[bytes, bytes]]
    thresholds: list[PublishedThreshold]
    moved: list[PublishedThreshold]
    dead_letters: list[DeadLetter]
    events: int


class PartitionTask:
    """Applies the records of one partition of `headstart.events` in one log epoch."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        epoch: int,
        config: LearningConfig,
        load: Callable[[bytes], bytes | None],
        outcomes: OutcomeSink | None = None,
    ) -> None:
        """`load` reads a row of the table. `outcomes` takes outcomes in place of the contexts."""
        self.partition, self._partitions, self._epoch = partition, partitions, epoch
        self.state = state = PartitionState(config, partitions, epoch, load)
        self.clock = state.clock
        self._events = EventApplier(state, outcomes)
        self._vectorized = VectorizedApplier(state, self._events) if outcomes is None else None
        self._controls = ControlApplier(partition, partitions, state, self._events, outcomes)
        self._operators_key = config.operators_key
        self._growth = GROWTH * (len(config.levels) + 1)
        self._dead_letters: list[DeadLetter] = []
        self._rejected_in = -1, EventBytes(b"")
        """Offset of the record of which an event was last rejected, and its events' bytes."""
        self._applied_events = self._end = 0
        self._newest = -1, b""
        """The newest row of this epoch that was restored: its offset and key."""
        self.applied_offset = -1
        """The last offset applied."""
        self.pending_rebuild: Rebuild | None = None
        """The rebuild at offset `reached`, to be applied or skipped before any other record."""
        self.reached = -1

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restore the state from all rows of the table. Raises `RowAhead`."""
        self.restore_some(rows)
        self.check_restored()

    def restore_some(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restore some of the table's rows; call `check_restored` after the last of them."""
        for key, raw in rows:
            epoch, offset = version(raw)
            if key == PARTITION_KEY:
                self.applied_offset = offset
                self.state.restore_own_row(raw)
            elif epoch == self._epoch and offset > self._newest[0]:
                self._newest = offset, key
            if not is_deleted(raw):
                self.state.restore(key, raw)

    def check_restored(self) -> None:
        """Raise `RowAhead` where a row is of a later offset than the partition's applied offset."""
        offset, key = self._newest
        if offset > self.applied_offset and not self.state.rebuilds.writes(offset):
            raise RowAhead(self.partition, key, offset, self.applied_offset)

    def apply(self, batch: RecordBatch, begin: int = 0) -> int:
        """Apply records from position `begin` on; return the next position.

        Stops early, at a record, where a commit is full, or at a rebuild: call `commit` and then
        continue. Records at or below the applied offset are skipped.
        """
        position, last = begin, len(batch.offsets)
        if self._is_full(batch, begin):
            return begin
        while position < last:
            offset = batch.offsets[position]
            if offset <= self.applied_offset:
                position += 1
                continue
            if batch.headers and offset in batch.headers:
                self._apply_record(batch, position, offset)
                position += 1
                if self.pending_rebuild is not None:
                    self.reached = self._end = offset
                    return position
            else:
                position, events = self._apply_plain(batch, position)
                self._applied_events += events
            self.applied_offset = batch.offsets[position - 1]
            if self._is_full(batch, position):
                break
        if position >= last and self._vectorized is not None:
            self._vectorized.end_batch()
        # After its last record, a fetch may have offsets without records, which are now done too.
        self._end = batch.end if position >= last else self.applied_offset + 1
        return position

    def _apply_plain(self, batch: RecordBatch, begin: int) -> tuple[int, int]:
        """Apply records without headers; return the next position, and how many events."""
        if self._vectorized is not None:
            done = self._vectorized.apply(batch, begin)
            if done is not None:
                return done
        return self._apply_singly(batch, begin)

    def _apply_singly(self, batch: RecordBatch, begin: int) -> tuple[int, int]:
        """Do the same event by event. Records are decoded together, which is faster."""
        taken = 0
        end = batch.plain_run(begin).stop
        decoded = decode_records(batch.values[begin:end], batch.timestamps[begin:end])
        for position, found in enumerate(decoded, begin):
            offset = batch.offsets[position]
            if found is None:
                self._apply_record(batch, position, offset)
            elif type(found) is list:
                taken += len(found)
                for event in found:
                    self._apply_event(batch, position, event, event.origin, offset)
            else:
                taken += 1
                self._apply_event(batch, position, found, found.origin, offset)  # type: ignore[union-attr, arg-type]
            if self._is_full(batch, position + 1):
                break
        return position + 1, taken

    def _apply_record(self, batch: RecordBatch, position: int, offset: int) -> None:
        """Apply the events of one record."""
        override = None
        if batch.headers and (headers := batch.headers.get(offset)):
            if not is_for_group(headers, THRESHOLDS_GROUP):
                return
            if is_control(headers):
                self._apply_control(batch, position, headers, offset)
                return
            override = origin_override(headers)
        decoded, refused = decode_record(batch.values[position], batch.timestamps[position])
        for rejection in refused:
            self._dead_letters.append(dead_letter(batch, position, rejection, THRESHOLDS_GROUP))
        for index, event in enumerate(decoded):
            origin = event.origin if override is None else (override[0], override[1] + index)
            self._apply_event(batch, position, event, origin, offset)
        self._applied_events += len(decoded)

    def _apply_event(
        self,
        batch: RecordBatch,
        position: int,
        event: EventFields,
        origin: tuple[str, int] | None,
        offset: int,
    ) -> None:
        """Apply one event of a record."""
        if partition_for(event.tenant, event.workflow_type, self._partitions) == self.partition:
            reason = self._events.apply(event, origin, offset)
        else:
            reason = self._wrong_partition_reason(event)
        if reason is not None:
            self._dead_letters.append(self._dead_letter(batch, position, event, reason))

    def _apply_control(
        self, batch: RecordBatch, position: int, headers: Headers, offset: int
    ) -> None:
        """Apply a control record; one that is invalid or not signed becomes a dead letter."""
        value = batch.values[position] or b""
        try:
            if len(value) > MAX_FRAME_BYTES:
                raise ValueError(f"it has {len(value)} bytes, the limit is {MAX_FRAME_BYTES}")
            control = read_control(value, headers, batch.timestamps[position], self._operators_key)
            self.pending_rebuild = self._controls.apply(control, offset)
        except ValueError as error:
            rejection = Rejection(value, str(error), None)
            self._dead_letters.append(dead_letter(batch, position, rejection, THRESHOLDS_GROUP))

    def skip_rebuild(self, reason: str | None = None) -> None:
        """Keep the table as it is instead of the pending rebuild.

        `reason`: why the rebuild was refused; without one, its learner choice is applied.
        """
        assert self.pending_rebuild is not None
        rebuild, self.pending_rebuild = self.pending_rebuild, None
        self.applied_offset = self.reached
        self._end = self.applied_offset + 1
        self.state.rebuilds.end(rebuild, reason or PASSED, self.applied_offset)
        if reason is None and rebuild.choice is not None:
            self._controls.apply(rebuild.choice, self.applied_offset)

    def _is_full(self, batch: RecordBatch, position: int) -> bool:
        """Return whether the rows since the last commit fill one, or may with the next record."""
        size = self.state.touched_bytes + self.state.control_bytes
        if size > COMMIT_BYTES or len(self._dead_letters) >= MOST_LETTERS:
            return True
        next_bytes = batch.value_bytes_at(position) if position < len(batch) else 0
        return size > 0 and size + self._growth * next_bytes > WITH_NEXT_BYTES

    def has_room(self) -> bool:
        """Return whether the next commit may wait for more records. Dead letters do not wait."""
        return self.state.touched_bytes < GATHER_BYTES and not self._dead_letters

    def is_dense(self) -> bool:
        """Return whether the next commit has many events for each of its rows."""
        return self.state.touched_bytes <= GATHER_EACH * self._applied_events

    def _dead_letter(
        self, batch: RecordBatch, position: int, event: EventFields, reason: str
    ) -> DeadLetter:
        offset = batch.offsets[position]
        if offset != self._rejected_in[0]:
            self._rejected_in = offset, EventBytes(batch.values[position] or b"")
        rejection = Rejection(self._rejected_in[1].of(event), reason, None)
        return dead_letter(batch, position, rejection, THRESHOLDS_GROUP)

    def _wrong_partition_reason(self, event: EventFields) -> str:
        """Return why an event is rejected: the states of its key in two partitions would differ."""
        right = partition_for(event.tenant, event.workflow_type, self._partitions)
        return f"its key belongs to partition {right}; produce with key tenant 0x1f workflow"

    def prefetch_scan(self, batch: RecordBatch) -> Callable[[], ScannedBatch | None] | None:
        """Return what scans a batch ahead, in any thread; None where that is not worth it."""
        return None if self._vectorized is None else self._vectorized.prefetch_scan(batch)

    def answers(self) -> list[PublishedThreshold]:
        """Return the thresholds that changed since the last call, or the last commit."""
        return list(self.state.contexts.answers().values())

    def commit(self) -> Checkpoint:
        """Return what changed since the last commit."""
        state = self.state
        rows, thresholds, moved = state.contexts.drain()
        rows += state.assignments.drain() + state.resets_and_seeds.drain() + state.rebuilds.drain()
        rows += state.contexts.downweights.drain()
        rows += (defaults := state.defaults.drain())
        published = [
            threshold_from_row(*row) for row in defaults if is_published(self.partition, row[0])
        ]
        thresholds += published
        moved += published
        rows += state.open_predictions.drain() + state.deduplicator.drain()
        rows.append((PARTITION_KEY, encode_partition(state.row, self._epoch, self.applied_offset)))
        commit = Checkpoint(
            self._end, rows, thresholds, moved, self._dead_letters, self._applied_events
        )
        self._dead_letters, self._applied_events = [], 0
        return commit


def apply_pending_updates(partitions: Sequence[PartitionTask]) -> None:
    """Apply the pending outcomes of several partitions of the same configuration."""
    pending_updates.apply_pending([each.state.contexts.updates for each in partitions])
