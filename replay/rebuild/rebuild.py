"""Rebuilds the thresholds from the log into a new table, and has the workers adopt it.

The worker's own core fills the new table in this process, and the result is compared with the live
table before anything is sent. Then, for each partition, the rows are written to `headstart.events`
as control records without an effect, followed by one record that makes them the table. The worker
applies the events that came since (processing/rebuild.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from processing.config import LearningConfig
from processing.control.learner_assignments import choice_row
from processing.control.rebuild_state import BEGUN, DONE, KEY, KEYS, followup_in
from processing.rebuild import digest_of, feed, staged_parts
from processing.records.batch import RecordBatch
from processing.state.rows import CONTEXT, PARTITION_KEY, is_row, version, with_version
from replay.log.live_table import Rows, live, read_settled
from replay.log.open_transactions import REMEDY, holding_back
from replay.log.purges import leave_out_purged, read_log_purges
from replay.log.replay import LogTruncatedByRetention, read_all
from replay.log.replayed_partition import EpochPartition, ReplayedPartition
from replay.log.snapshots import Snapshot
from replay.rebuild.served_changes import LargestChanges
from replay.verify.row_diff import Findings, compare_rows
from topics.catalogue import CHANGELOG, EVENTS
from topics.control.log import send_in_order
from topics.control.messages import LearnerChoice, Rebuild, Staged
from topics.control.purges import PartitionPurges
from topics.epoch import Epoch, read_epoch
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import TopicState

NEAR: Final = 2_000
"""Records that may be missing when rows are staged: the worker applies them once more."""
_ROUNDS: Final = 20
_PROGRESS_S: Final = 5.0


@dataclass(frozen=True)
class RebuildConfig:
    """What to rebuild.

    `choice`: the learner of some contexts, as if it had been assigned before the first record.
    `snapshot`: the rows to begin with if retention has deleted the beginning of the log.
    """

    kafka: str
    rules: LearningConfig
    choice: LearnerChoice | None = None
    snapshot: Snapshot | None = None


@dataclass
class TableComparison:
    """The new table compared with the live one, each partition at the live table's offset."""

    findings: Findings = field(default_factory=Findings)
    changes: LargestChanges = field(default_factory=LargestChanges)
    partitions: int = 0
    contexts: int = 0
    rows: int = 0


class RebuildNotApplied(RuntimeError):
    """Some partitions have not adopted the rows; the message names them and the reason."""


class TableReplacement:
    """One rebuild: call `learn`, examine the comparison, then `send` and `wait`."""

    def __init__(self, config: RebuildConfig, echo: Callable[[str], None]) -> None:
        self._config, self._echo = config, echo
        self._epoch = Epoch(0, 0)
        self._fresh: dict[int, ReplayedPartition] = {}
        self._purges: dict[int, PartitionPurges] = {}
        self._changelog: Mapping[int, int] = {}
        """End offsets of the changelog before anything was sent."""
        self._started: set[int] = set()
        """The partitions that have begun to adopt the rows."""

    async def learn(self) -> TableComparison:
        """Replay every partition up to the live table's offset, and compare.

        Raises `BrokerUnreachable`, `TopicsMissing`, `LogTruncatedByRetention`, `NotASnapshot` and
        `RowAhead`.
        """
        self._epoch = await read_epoch(self._config.kafka)
        key = self._config.rules.operators_key
        self._purges = await read_log_purges(self._config.kafka, key)
        events = await topic_state(self._config.kafka, EVENTS.name)
        found = TableComparison()
        for place in range(self._epoch.partitions):
            await self._learn(place, events, found)
            found.partitions += 1
            self._echo(
                f"partition {place + 1} of {self._epoch.partitions}: {found.rows} rows, "
                f"{found.findings.counts.total()} differ, {found.changes.count} thresholds change"
            )
        return found

    async def _learn(self, place: int, events: TopicState, found: TableComparison) -> None:
        table = await read_settled(self._config.kafka, place, self._epoch.number)
        fresh = self._new_partition(place, table.begin)
        begin, end = events.begin[place], table.applied_offset + 1
        if fresh.applied_offset + 1 < begin < end:
            raise LogTruncatedByRetention(place, fresh.applied_offset + 1, begin)
        await self._advance(place, fresh, max(end, begin))
        right = live(fresh.table)
        compare_rows(found.findings, place, self._comparable(table.rows), self._comparable(right))
        found.changes.add(table.rows, right)
        found.rows += len(right)
        found.contexts += sum(key[:1] == CONTEXT for key in right)
        self._fresh[place] = fresh

    def _new_partition(self, place: int, begin: Rows) -> ReplayedPartition:
        config, epoch = self._config, self._epoch
        rows = dict(begin)
        if config.snapshot is not None:
            rows = dict(config.snapshot.of_epoch(epoch.number).get(place, begin))
        if config.choice is not None:
            key, row = choice_row(config.choice, epoch.number)
            rows[key] = row
        at = EpochPartition(place, epoch.partitions, epoch.number)
        # Rows of an earlier rebuild were learned from what is purged now.
        skip = config.choice is not None or bool(self._purges[place])
        return ReplayedPartition(at, config.rules, rows, skip_rebuild=skip)

    def _comparable(self, rows: Rows) -> Rows:
        """Return rows without those that must differ if another learner was chosen."""
        choice = self._config.choice
        if choice is None:
            return rows
        left_out = {*KEYS, choice_row(choice, self._epoch.number)[0]}
        return {key: with_version(row, 0, 0) for key, row in rows.items() if key not in left_out}

    async def _advance(self, place: int, fresh: ReplayedPartition, end: int) -> None:
        read = partial(self._read, place)
        reported_at = time.monotonic()
        async for batch in read(range(fresh.applied_offset + 1, end)):
            for takeover in fresh.apply(batch):
                await feed(takeover, read)
            if time.monotonic() > reported_at + _PROGRESS_S:
                reported_at = time.monotonic()
                self._echo(f"partition {place}: offset {fresh.applied_offset:,} of {end:,}")

    async def _read(self, place: int, log: range) -> AsyncIterator[RecordBatch]:
        async for batch in read_all(self._config.kafka, place, log):
            leave_out_purged(batch, self._purges[place])
            yield batch

    async def send(self, id: str) -> dict[int, int]:
        """Send the new table to the workers; return the offset of its last record by partition.

        A partition receives all of it or nothing: if this is interrupted, call it again. Raises
        `BrokerUnreachable` and `NotEverywhere`.
        """
        self._changelog = (await topic_state(self._config.kafka, CHANGELOG.name)).end
        offsets = {}
        for place, fresh in self._fresh.items():
            offsets[place] = await self._send(id, place, fresh)
            self._echo(f"partition {place}: sent, at offset {offsets[place]}")
        return offsets

    async def _send(self, id: str, place: int, fresh: ReplayedPartition) -> int:
        config = self._config
        # The applied offset stays the same if the log ends without records.
        read = fresh.applied_offset + 1
        for _ in range(_ROUNDS):
            end = (await topic_state(config.kafka, EVENTS.name)).end[place]
            await self._advance(place, fresh, end)
            behind, read = end - read, end
            if behind <= NEAR:
                break
        before = followup_in(fresh.table.get(KEY))
        now = time.time_ns() // 1_000_000
        if before is not None:  # the rebuild with the later time applies
            now = max(now, before.rebuild.at + 1)
        rows = [(key, row) for key, row in live(fresh.table).items() if key not in KEYS]
        staged = [
            Staged(id, now, number, tuple(part)) for number, part in enumerate(staged_parts(rows))
        ]
        command = Rebuild(
            id, now, self._epoch.number, fresh.applied_offset, len(staged), digest_of(rows),
            config.rules.digest, config.choice,
        )  # fmt: skip
        operators_key = config.rules.operators_key
        *_, offset = await send_in_order(config.kafka, place, [*staged, command], operators_key)
        return offset

    async def wait(self, id: str, offsets: Mapping[int, int], patience_s: float) -> None:
        """Wait until every partition has adopted the new table. Raises `RebuildNotApplied`."""
        waiting = dict(offsets)
        rows = read_records(self._config.kafka, CHANGELOG.name, self._changelog)
        warning = asyncio.create_task(self._name_open_transactions(waiting))
        try:
            async with asyncio.timeout(patience_s), aclosing(rows):
                async for record in rows:
                    self._apply_row(id, waiting, record.partition, record.key, record.value)
                    if not waiting:
                        return
        except TimeoutError:
            held = await holding_back(self._config.kafka, waiting)
            raise RebuildNotApplied(_reason(waiting, patience_s, held)) from None
        finally:
            warning.cancel()

    async def _name_open_transactions(self, waiting: Mapping[int, int]) -> None:
        """Report the open transactions that workers wait for, once."""
        held: list[str] = []
        while not held:
            await asyncio.sleep(_PROGRESS_S)
            held = await holding_back(self._config.kafka, waiting)
        self._echo(f"waiting for {'; '.join(held)}: {REMEDY}")

    def _apply_row(
        self, id: str, waiting: dict[int, int], place: int, key: bytes, row: bytes | None
    ) -> None:
        """Process a changelog row. Raises `RebuildNotApplied` if the rebuild was refused."""
        if place not in waiting or row is None or not is_row(key, row):
            return
        past = key == PARTITION_KEY and version(row) >= (self._epoch.number, waiting[place])
        if past and place not in self._started:
            raise RebuildNotApplied(
                f"partition {place} skipped the rebuild at offset {waiting[place]}: "
                "`headstart dead-letters list --group thresholds` shows the reason"
            )
        state = followup_in(row) if key in KEYS else None
        if state is None or state.rebuild.id != id:
            return
        self._started.add(place)
        if state.result == BEGUN:
            return
        if state.result != DONE:
            raise RebuildNotApplied(f"partition {place} refused the rebuild: {state.result}")
        del waiting[place]
        self._echo(f"partition {place}: new table adopted")


def _reason(waiting: Mapping[int, int], patience_s: float, held: Sequence[str]) -> str:
    places = ", ".join(f"{place}:{offset}" for place, offset in sorted(waiting.items()))
    failed = f"sent, but not adopted after {patience_s:.0f} s at {places} (partition:offset)"
    if held:
        return f"{failed}; a threshold worker waits for {'; '.join(held)}: {REMEDY}"
    return (
        f"{failed}; a threshold worker adopts it when it reaches the offset: "
        "`headstart status` shows whether one runs"
    )
