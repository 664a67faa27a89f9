"""One partition of the threshold agent, without its I/O: records in, commits out.

State is a pure function of (epoch, prefix of the log): what time it is comes from the log
(`processing.state.clock`), and no decision depends on where a batch ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headstart.events.frames import MAX_FRAME_BYTES
from headstart.keys import workflow_type_of
from processing.apply.vectorized import MOST_BYTES, VectorizedApplier
from processing.config import LearningConfig
from processing.contexts import pending_updates
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.control.latest_by_subject import LatestBySubject
from processing.control.learner_assignments import matcher
from processing.control.messages import read_control
from processing.control.rebuild_state import PASSED, RebuildState
from processing.control.resets_and_seeds import ResetsAndSeeds
from processing.records.batch import Headers, RecordBatch
from processing.records.dead_letters import DeadLetter, dead_letter
from processing.records.decode import EventBytes, Rejection, decode_record, decode_records
from processing.records.headers import is_for_group, origin_override
from processing.records.partitioner import partition_for
from processing.state.rows import (
    CONTEXT,
    CONTROL,
    DEFAULT,
    EVIDENCE,
    PARTITION_KEY,
    SPOOL,
    START,
    decode_partition,
    encode_partition,
    is_deleted,
    version,
)
from topics.catalogue import THRESHOLDS_GROUP
from topics.control.messages import (
    Clock,
    Control,
    Downweight,
    LearnerChoice,
    Rebuild,
    Reset,
    Seed,
    Staged,
    is_control,
    refuse_misplaced,
)
from topics.schema.event_structs import EventFields
from topics.schema.json_schema import PublishedThreshold

COMMIT_BYTES: Final = 4_000_000
"""Size at which a commit is cut, by offset."""
GROWTH: Final = 2.25
"""A record adds at most so many times its own bytes to a commit for each level of contexts, the
workflow type's among them: an identifier may stand in the keys of all, with three bytes for one.
What comes to its end there is apart: `ENDING_BYTES`."""
WITH_NEXT_BYTES: Final = 8_800_000
"""Size that a commit may have with one record more: the changelog takes 10 MB, with what ends."""
GATHER_BYTES: Final = MOST_BYTES // 2
"""Size of a commit from which on no more is to come to it: there is little room for stretches."""
GATHER_EACH: Final = 16
"""Bytes of its rows for each of its events, below which a commit is well filled: some twenty events
for each row."""

MOST_LETTERS: Final = 1_000
"""Dead letters at which a commit is cut, by record. A fetch may hold millions: `[1,1,1...]`."""


class RowAhead(RuntimeError):
    """A row is of a later offset than the last applied one: part of a checkpoint is missing."""

    def __init__(self, partition: int, key: bytes, offset: int, applied_offset: int) -> None:
        super().__init__(
            f"partition {partition}: the row {key!r} is of offset {offset}, the last applied "
            f"offset is {applied_offset}: the changelog or the local store has lost part of a "
            "commit. Delete this worker's data directory to restore it from the changelog"
        )


@dataclass
class Checkpoint:
    """Everything that one step changes, to be delivered in this order.

    `rows`: for the changelog (one record batch, the partition's row last) and then the local store.
    `thresholds`: every context touched since `PartitionTask.answers`, for Redis; `moved`: those
    whose answer changed since the last commit, for the compacted topic. `end`: the next offset to
    apply.
    """

    end: int
    rows: list[tuple[bytes, bytes]]
    thresholds: list[PublishedThreshold]
    moved: list[PublishedThreshold]
    dead_letters: list[DeadLetter]
    events: int


class PartitionTask(VectorizedApplier):
    """The state of one partition of `headstart.events` in one log epoch."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        epoch: int,
        rules: LearningConfig,
        load: Callable[[bytes], bytes | None],
    ) -> None:
        super().__init__(rules, partitions, epoch, load)
        self.partition, self._partitions, self._epoch = partition, partitions, epoch
        self._operators_key = rules.operators_key
        self._interventions, self._rebuilds = (
            ResetsAndSeeds(epoch),
            RebuildState(epoch, rules.digest),
        )
        self._followed: Sequence[LatestBySubject[Any]] = (
            self._choices, self._defaults, self._contexts.weighings, self._interventions,
            self._rebuilds,
        )  # fmt: skip
        self._growth = GROWTH * (len(rules.levels) + 1)
        self._letters: list[DeadLetter] = []
        self._bytes_of = -1, EventBytes(b"")
        """Those of the record, by offset, of which an event was last refused."""
        self._events = self._end = 0
        self._newest = -1, b""
        self.applied_offset = -1
        """The last offset applied."""
        self.pending_rebuild: Rebuild | None = None
        """The rebuild that is next, at `reached`: to be taken over, or passed, before all else."""
        self.reached = -1

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take up the partition's own row, open starts and positions from the table.

        Raises `RowAhead`.
        """
        self.restore_some(rows)
        self.check_restored()

    def restore_some(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take up some of the table's rows; after the last of them goes `check_restored`."""
        for key, raw in rows:
            epoch, offset = version(raw)
            if key == PARTITION_KEY:
                self._row, self.applied_offset = decode_partition(raw), offset
                self.clock.restore(self._row)
                if self.clock.witnessed:  # rows that came before it were taken at their word
                    self._contexts.judge_again()
                    self._spools.judge_again()
                    self._starts.judge_again()
            elif epoch == self._epoch and offset > self._newest[0]:
                self._newest = offset, key
            if is_deleted(raw):
                continue
            if key.startswith(START):
                self._starts.restore(key, raw)
            elif key.startswith(SPOOL):
                self._spools.restore(key, raw)
            elif key.startswith(CONTEXT):
                self._contexts.restore(key, raw)
            elif key.startswith(CONTROL):
                self._choices.restore(key, raw)
                self._interventions.restore(key, raw)
                self._contexts.weighings.restore(key, raw)
                self._rebuilds.restore(key, raw)
            elif key.startswith((DEFAULT, EVIDENCE)):
                self._defaults.restore(key, raw)

    def check_restored(self) -> None:
        """Raise `RowAhead` where a row is of a later offset than the partition's applied offset."""
        offset, key = self._newest
        if offset > self.applied_offset and not self._rebuilds.writes(offset):
            raise RowAhead(self.partition, key, offset, self.applied_offset)

    def apply(self, batch: RecordBatch, begin: int = 0) -> int:
        """Apply records from position `begin` on; return the next position.

        Stops early, at a record, where what has gathered fills a commit, or at a rebuild: then take
        `commit` and go on. Records at or below the applied offset are skipped: they were applied
        before.
        """
        position, last = begin, len(batch.offsets)
        if self._full(batch, begin):
            return begin
        while position < last:
            offset = batch.offsets[position]
            if offset <= self.applied_offset:
                position += 1
                continue
            if batch.headers and offset in batch.headers:
                self._record(batch, position, offset)
                position += 1
                if self.pending_rebuild is not None:
                    self.reached = self._end = offset
                    return position
            else:
                done = self._stretch(batch, position)
                position, taken = self._run(batch, position) if done is None else done
                self._events += taken
            self.applied_offset = batch.offsets[position - 1]
            if self._full(batch, position):
                break
        if position >= last:
            self._scanned_all()
        # Past the last record of a fetch come its holes, which nobody will see again.
        self._end = batch.end if position >= last else self.applied_offset + 1
        return position

    def _run(self, batch: RecordBatch, begin: int) -> tuple[int, int]:
        """Apply records without headers one by one; return the next position, and events.

        They are decoded together, which is faster.
        """
        taken = 0
        for position, found in enumerate(decoded(batch, begin), begin):
            offset = batch.offsets[position]
            if found is None:
                self._record(batch, position, offset)
            elif type(found) is list:
                taken += len(found)
                for event in found:
                    self._take(batch, position, event, event.origin, offset)
            else:
                taken += 1
                self._take(batch, position, found, found.origin, offset)  # type: ignore[union-attr, arg-type]
            if self._full(batch, position + 1):
                break
        return position + 1, taken

    def _record(self, batch: RecordBatch, position: int, offset: int) -> None:
        """Apply the events of one record."""
        lane = None
        if batch.headers and (headers := batch.headers.get(offset)):
            if not is_for_group(headers, THRESHOLDS_GROUP):
                return
            if is_control(headers):
                self._control(batch, position, headers, offset)
                return
            lane = origin_override(headers)
        decoded, refused = decode_record(batch.values[position], batch.timestamps[position])
        for refusal in refused:
            self._letters.append(dead_letter(batch, position, refusal, THRESHOLDS_GROUP))
        for place, event in enumerate(decoded):
            origin = event.origin if lane is None else (lane[0], lane[1] + place)
            self._take(batch, position, event, origin, offset)
        self._events += len(decoded)

    def _take(
        self,
        batch: RecordBatch,
        position: int,
        event: EventFields,
        origin: tuple[str, int] | None,
        offset: int,
    ) -> None:
        """Apply one event of a record."""
        if partition_for(event.tenant, event.workflow_type, self._partitions) == self.partition:
            reason = self._event(event, origin, offset)
        else:
            reason = self._wrong_partition_reason(event)
        if reason is not None:
            self._letters.append(self._letter(batch, position, event, reason))

    def _control(self, batch: RecordBatch, position: int, headers: Headers, offset: int) -> None:
        """Apply a control record; what is wrong with it, or not signed, is a dead letter."""
        value = batch.values[position] or b""
        try:
            if len(value) > MAX_FRAME_BYTES:
                raise ValueError(f"it has {len(value)} bytes, the limit is {MAX_FRAME_BYTES}")
            control = read_control(value, headers, batch.timestamps[position], self._operators_key)
            self._follow(control, offset)
        except ValueError as error:
            refusal = Rejection(value, str(error), None)
            self._letters.append(dead_letter(batch, position, refusal, THRESHOLDS_GROUP))

    def _follow(self, control: Control, offset: int) -> None:
        """Do what a control record says. Raises `ValueError`, nothing done."""
        refuse_misplaced(control, self.partition)
        if isinstance(control, LearnerChoice):
            if self._choices.apply(control, offset):
                self._contexts.choose_again()
        elif isinstance(control, Reset):
            holds = matcher(control.pattern, control.tenant)
            if self._interventions.new(control):
                self._row.forgotten += self._contexts.forget(holds, offset)
                self._interventions.note(control, offset)
        elif isinstance(control, Seed):
            self._seed(control, offset)
        elif isinstance(control, Clock):
            self._witness(control.at, offset)
        elif isinstance(control, Downweight):
            self._own(control.tenant, control.path)
            self._contexts.weigh(control, self._row.clock, offset)
        elif isinstance(control, Rebuild):
            self.pending_rebuild = self._rebuilds.begin(control, offset)
        elif not isinstance(control, Staged):
            self._defaults.apply(control, offset)

    def _seed(self, seed: Seed, offset: int) -> None:
        for each in seed.contexts:
            self._own(seed.tenant, each.path)
        if self._interventions.new(seed):
            self._contexts.seed(seed.tenant, seed.at, seed.contexts, offset)
            self._row.seeded += len(seed.contexts)
            self._row.evicted += self._contexts.bound(seed.tenant, 0, offset, self._room.at(offset))
            self._interventions.note(seed, offset)

    def _own(self, tenant: str, path: str) -> None:
        """Raise `ValueError` where a context belongs to another partition."""
        right = partition_for(tenant, workflow_type_of(path), self._partitions)
        if right != self.partition:
            raise ValueError(f"path: {path} belongs to partition {right}")

    def skip_rebuild(self, reason: str | None = None) -> None:
        """Go on with the table as it is: refused for a reason; without one its choice holds."""
        assert self.pending_rebuild is not None
        rebuild, self.pending_rebuild, self.applied_offset = (
            self.pending_rebuild,
            None,
            self.reached,
        )
        self._end = self.applied_offset + 1
        self._rebuilds.end(rebuild, reason or PASSED, self.applied_offset)
        if reason is None and rebuild.choice is not None:
            self._follow(rebuild.choice, self.applied_offset)

    def _full(self, batch: RecordBatch, position: int) -> bool:
        """Return whether what changed since the last commit may fill one, with the next record."""
        gathered = self._gathered + sum(each.touched_bytes for each in self._followed)
        if gathered > COMMIT_BYTES or len(self._letters) >= MOST_LETTERS:
            return True
        following = batch.value_bytes_at(position) if position < len(batch) else 0
        return gathered > 0 and gathered + self._growth * following > WITH_NEXT_BYTES

    def has_room(self) -> bool:
        """Return whether the next commit has room for more records. A refusal waits for nothing."""
        return self._gathered < GATHER_BYTES and not self._letters

    def is_dense(self) -> bool:
        """Return whether the next commit has many events for each of its rows."""
        return self._gathered <= GATHER_EACH * self._events

    def _letter(
        self, batch: RecordBatch, position: int, event: EventFields, reason: str
    ) -> DeadLetter:
        offset = batch.offsets[position]
        if offset != self._bytes_of[0]:
            self._bytes_of = offset, EventBytes(batch.values[position] or b"")
        refusal = Rejection(self._bytes_of[1].of(event), reason, None)
        return dead_letter(batch, position, refusal, THRESHOLDS_GROUP)

    def _wrong_partition_reason(self, event: EventFields) -> str:
        """Return why no state may come of this event here: two owners of a key would differ."""
        right = partition_for(event.tenant, event.workflow_type, self._partitions)
        return f"its key belongs to partition {right}; produce with key tenant 0x1f workflow"

    def answers(self) -> list[PublishedThreshold]:
        """Return what contexts answer that changed since the last call, or the last commit."""
        return list(self._contexts.answers().values())

    def commit(self) -> Checkpoint:
        """Return what changed since the last commit."""
        rows, thresholds, moved = self._contexts.drain()
        rows += self._choices.drain() + self._interventions.drain() + self._rebuilds.drain()
        rows += self._contexts.weighings.drain()
        defaults = self._defaults.drain()
        rows += defaults
        served = [
            threshold_from_row(*row) for row in defaults if is_published(self.partition, row[0])
        ]
        thresholds += served
        moved += served
        rows += self._starts.drain()
        rows += self._spools.drain()
        rows.append((PARTITION_KEY, encode_partition(self._row, self._epoch, self.applied_offset)))
        commit = Checkpoint(self._end, rows, thresholds, moved, self._letters, self._events)
        self._letters, self._events = [], 0
        return commit


def decoded(batch: RecordBatch, begin: int) -> Sequence[EventFields | Sequence[EventFields] | None]:
    """Return what each record of a run without headers holds; there is at least one record."""
    end = batch.plain_run(begin).stop
    return decode_records(batch.values[begin:end], batch.timestamps[begin:end])


def settle(partitions: Sequence[PartitionTask]) -> None:
    """Have the contexts of partitions that learn by the same rules learn what they were told."""
    pending_updates.apply_pending([each._contexts.lessons for each in partitions])
