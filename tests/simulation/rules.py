"""The rules that keep it exact, each of which can be switched off to see that its absence shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import agents.thresholds.agent
import agents.thresholds.recovery
import agents.thresholds.redis_publishing
import agents.thresholds.services
from agents.storage.batches import BatchCommitter
from agents.thresholds.checkpoint_targets import PartitionTargets
from agents.thresholds.checkpoint_writer import CheckpointWriter, Row
from agents.thresholds.redis_publishing import PartitionPublisher
from processing.records.batch import Headers, RecordBatch
from processing.records.dlq_limits import Slice
from processing.records.offset_tracker import FetchDecision, OffsetTracker
from processing.records.sink_lines import SinkBatch
from processing.state.deduplication import Deduplicator
from processing.state.rows import is_deleted
from processing.task import Checkpoint, PartitionTask
from tests.simulation import clients, databases
from tests.simulation.control_rules import CONTROL_RULES
from tests.simulation.epoch_rules import EPOCH_RULES
from tests.simulation.failovers import FAILOVER_RULES
from tests.simulation.redis_rules import REDIS_RULES
from tests.simulation.transactions import TRANSACTION_RULES
from topics.catalogue import CHANGELOG
from topics.schema.json_schema import PublishedThreshold

Patches = Any


def spool_positions() -> Patches:
    """An event at or below the last position seen of its spool and key is a duplicate."""
    return patch.object(Deduplicator, "duplicate", lambda *_: False)


def one_record_batch() -> Patches:
    """A commit is exactly one record batch."""

    async def send(
        self: clients.Producer,
        topic: str,
        partition: int,
        rows: Sequence[Row],
        last_headers: Headers = (),
    ) -> tuple[int, int]:
        if topic != CHANGELOG.name or len(rows) < 2:
            placed: tuple[int, int] = await self.send_batch(topic, partition, rows, last_headers)
            return placed
        half = len(rows) // 2
        first, _ = await self.send_batch(topic, partition, rows[:half], ())
        _, last = await self.send_batch(topic, partition, rows[half:], last_headers)
        return first, last

    return patch.object(clients.Producer, "send_rows", send)


def higher_offset_wins() -> Patches:
    """Recovery keeps the row of the higher (epoch, offset)."""
    return patch.object(agents.thresholds.recovery, "stale", lambda *_: False)


def publish_on_opening() -> Patches:
    """What may be in the table but not in Redis is published again on taking up a partition."""
    real = agents.thresholds.services.PartitionServices.thresholds_of

    def thresholds_of(
        self: Any, partition: int, rows: Any, oldest: int | None = None
    ) -> list[PublishedThreshold]:
        return real(self, partition, rows) if oldest is None else []

    return patch.object(
        agents.thresholds.services.PartitionServices, "thresholds_of", thresholds_of
    )


def hold_back_while_redis_is_away() -> Patches:
    """The committed offset does not pass what waits for Redis."""
    return patch.object(
        agents.thresholds.redis_publishing.RedisPublishQueue, "behind", property(lambda _: False,
        lambda *_: None), create=True,
    )  # fmt: skip


def done_after_what_was_ahead() -> Patches:
    """The offset is done only when Redis has what was published ahead of its rows."""

    async def wait_published(self: PartitionPublisher) -> None:
        requests, self._requests = self._requests, []
        await requests[-1]  # of the checkpoint itself
        self.in_flight = ()

    return patch.object(PartitionPublisher, "wait_published", wait_published)


def gap_seek() -> Patches:
    """A fetch that begins beyond the next offset is fetched again from there."""
    real = OffsetTracker.judge

    def judge(self: OffsetTracker[Any], place: Any, batch: RecordBatch) -> FetchDecision:
        verdict = real(self, place, batch)
        if verdict is not FetchDecision.GAP:
            return verdict
        self._next[place] = batch.end
        return FetchDecision.TAKE

    return patch.object(OffsetTracker, "judge", judge)


def holes_fetched_again() -> Patches:
    """On a broker that shows later records before earlier ones, holes are fetched again."""
    return patch.object(OffsetTracker, "_may_miss_records", lambda *_: False)


def write_after_acknowledgement() -> Patches:
    """The local store is written after the changelog acknowledged."""
    real = CheckpointWriter._append

    async def append(self: CheckpointWriter, rows: Sequence[Row]) -> bool:
        if self._targets.current():
            self._targets.write_rows(rows, None)
        return await real(self, rows)

    return patch.object(CheckpointWriter, "_append", append)


def epoch_in_the_version() -> Patches:
    """Redis compares (epoch, offset), not offsets alone."""
    return patch.object(databases.Redis, "newer", lambda _, known, offered: offered[1] > known[1])


def version_in_redis() -> Patches:
    """Redis takes only a higher version."""
    return patch.object(databases.Redis, "newer", lambda *_: True)


def answer_stale_rows() -> Patches:
    """A stale row in the changelog is followed by the good one before compaction."""

    real = CheckpointWriter._superseding

    async def superseding(self: CheckpointWriter, begin: int, end: int) -> list[Row]:
        await real(self, begin, end)
        return []

    async def rewrite_stale_keys(self: CheckpointWriter, keys: object) -> None:
        return

    return patch.multiple(
        CheckpointWriter, _superseding=superseding, rewrite_stale_keys=rewrite_stale_keys
    )


def announce_after_others() -> Patches:
    """Where another owner's rows are answered, what they answer is announced too."""

    async def produce_rows(self: PartitionTargets, rows: Sequence[tuple[bytes, bytes]]) -> None:
        return

    return patch.object(PartitionTargets, "produce_rows", produce_rows)


def offset_behind_newer_rows() -> Patches:
    """The local store's changelog offset does not pass over newer rows of another owner."""

    def store(self: CheckpointWriter, rows: Sequence[Row], changelog_offset: int) -> None:
        self._targets.write_rows(rows, changelog_offset)

    return patch.object(CheckpointWriter, "_store", store)


def generation_check() -> Patches:
    """A process that lost the assignment does not write."""

    def current(self: PartitionTargets) -> bool:
        self._services.stall_guard.check()
        return True

    return patch.object(PartitionTargets, "current", current)


def stall_check() -> Patches:
    """A process that stalled beyond the session ends before it writes."""
    return patch.object(clients.Alive, "check", lambda _: None)


def skip_what_was_applied() -> Patches:
    """Records at or below the applied offset are skipped."""
    real = PartitionTask.apply

    def apply(self: PartitionTask, batch: RecordBatch, begin: int = 0) -> int:
        self.applied_offset = min(self.applied_offset, batch.offsets[begin] - 1)
        return real(self, batch, begin)

    return patch.object(PartitionTask, "apply", apply)


def begin_after_the_watermark() -> Patches:
    """A partition begins after its own applied offset, not at the committed offset."""
    real = agents.thresholds.agent.ThresholdAgent.positions

    async def positions(self: Any, assigned: set[Any], committed: Mapping[Any, int]) -> Any:
        begin = dict(await real(self, assigned, committed))
        begin = {tp: committed.get(tp, 0) for tp in begin}
        self._sequencer.positions._next.update(begin)
        return begin

    return patch.object(agents.thresholds.agent.ThresholdAgent, "positions", positions)


def offsets_in_the_transaction() -> Patches:
    """The sink's offsets are written in the batch's own transaction."""

    async def commit(
        self: Any, keys: Sequence[Any], epoch: int, offsets: Mapping[int, int]
    ) -> None:
        await self._run("postgres.commit", lambda postgres: postgres.advance(epoch, offsets))
        await self._run("postgres.commit", lambda postgres: [postgres.insert(k) for k in keys])

    return patch.object(databases.Sink, "_commit", commit)


def offsets_after_the_transaction() -> Patches:
    """The same, the other way round: rows first, offsets in a transaction of their own."""

    async def commit(
        self: Any, keys: Sequence[Any], epoch: int, offsets: Mapping[int, int]
    ) -> None:
        await self._run("postgres.commit", lambda postgres: [postgres.insert(k) for k in keys])
        await self._run("postgres.commit", lambda postgres: postgres.advance(epoch, offsets))

    return patch.object(databases.Sink, "_commit", commit)


def unique_key() -> Patches:
    """An event is stored once by a unique key."""

    def insert(self: databases.Postgres, key: tuple[str, str, str]) -> None:
        self.rows[key] = self.rows.get(key, 0) + 1

    return patch.object(databases.Postgres, "insert", insert)


def dead_letters_first() -> Patches:
    """Dead letters are sent before the commit that they belong to."""

    async def write(self: CheckpointWriter, checkpoint: Checkpoint) -> None:
        targets = self._targets
        async with self._one_at_a_time:
            if not await self._append(checkpoint.rows):
                return
            targets.publish(checkpoint.thresholds)
            await targets.wait_published()
            await targets.produce_thresholds(checkpoint.moved)
            targets.done(checkpoint.end)
            await targets.send_dead_letters(checkpoint.dead_letters)

    return patch.object(CheckpointWriter, "write", write)


def dead_letters_before_the_transaction() -> Patches:
    """The same in the sink."""

    async def commit(
        self: BatchCommitter, parts: Sequence[Slice], unpacked: SinkBatch, _sent: Any = ()
    ) -> None:
        late = list(unpacked.dead_letters)

        async def on_refused(refused: Sequence[tuple[int, str]]) -> None:
            late.extend(unpacked.refuse(index, reason, self.group) for index, reason in refused)

        offsets = {part.batch.partition: part.reached for part in parts}
        await self.transactions.store(unpacked, offsets, on_refused)
        await self.producer.send_dead_letters(late)

    return patch.object(BatchCommitter, "commit", commit)


def notice_a_forgetful_redis() -> Patches:
    """What was published is published again where Redis has lost it."""

    async def unpublished(self: Any, partitions: Sequence[int]) -> tuple[bytes, list[int]]:
        return b"", []

    return patch.object(databases.Published, "unpublished", unpublished)


def mark_while_publishing() -> Patches:
    """A Redis that is emptied in mid-publication is noticed by its mark."""

    async def remember(self: Any, partition: int, run: bytes, _mark: bytes) -> None:
        def write(redis: databases.Redis) -> None:
            redis.published[partition] = run

        await databases.redis_call(self._process, "redis.remember", write)

    return patch.object(databases.Published, "remember", remember)


def publish_again_what_is_under_way() -> Patches:
    """A Redis that was emptied gets what is being published of rows not yet in the local store."""
    nothing = property(lambda _: (), lambda *_: None)
    return patch.object(PartitionPublisher, "in_flight", nothing, create=True)


def markers_instead_of_tombstones() -> Patches:
    """A deleted row is a marker with a version, not at once a tombstone."""
    real = CheckpointWriter._append

    async def append(self: CheckpointWriter, rows: Sequence[Row]) -> bool:
        buried = [(key, None if row and is_deleted(row) else row) for key, row in rows]
        return await real(self, buried)

    return patch.object(CheckpointWriter, "_append", append)


def complete_from_the_beginning() -> Patches:
    """A rewritten changelog counts from where the rewrite began, not from where it ended."""
    real = CheckpointWriter.rewrite

    async def rewrite(self: CheckpointWriter, pieces: Any) -> None:
        before = self.complete_from
        await real(self, pieces)
        if self.complete_from != before:
            self.complete_from = self._next

    return patch.object(CheckpointWriter, "rewrite", rewrite)


def rewrite_whole() -> Patches:
    """The changelog counts as complete only when every row was appended again."""
    real = CheckpointWriter.rewrite

    async def rewrite(self: CheckpointWriter, pieces: Any) -> None:
        begin = self._next
        await real(self, pieces)
        self.complete_from = begin

    async def half(self: CheckpointWriter, rows: Sequence[Row]) -> bool:
        return await again(self, rows[: len(rows) // 2])

    again = CheckpointWriter._append_again
    return patch.multiple(CheckpointWriter, rewrite=rewrite, _append_again=half)


RULES: dict[str, Callable[[], Patches]] = {
    rule.__name__: rule
    for rule in (
        spool_positions, one_record_batch, higher_offset_wins, publish_on_opening,
        hold_back_while_redis_is_away, done_after_what_was_ahead, gap_seek, holes_fetched_again,
        write_after_acknowledgement,
        epoch_in_the_version, version_in_redis, answer_stale_rows,
        announce_after_others, offset_behind_newer_rows,
        generation_check, stall_check, skip_what_was_applied, begin_after_the_watermark,
        offsets_in_the_transaction, offsets_after_the_transaction, unique_key, dead_letters_first,
        dead_letters_before_the_transaction, notice_a_forgetful_redis, mark_while_publishing,
        publish_again_what_is_under_way, markers_instead_of_tombstones,
        complete_from_the_beginning, rewrite_whole, *CONTROL_RULES, *TRANSACTION_RULES,
        *REDIS_RULES, *FAILOVER_RULES, *EPOCH_RULES,
    )
}  # fmt: skip


@contextmanager
def without(rule: str) -> Iterator[None]:
    """Switch a rule off."""
    with RULES[rule]():
        yield
