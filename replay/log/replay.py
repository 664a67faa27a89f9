"""Replays the log through the core of the threshold agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from processing.config import LearningConfig
from processing.rebuild import feed
from processing.records.batch import RecordBatch
from processing.task import Checkpoint, PartitionTask
from replay.log.live_table import Rows
from replay.log.record_batches import batched
from replay.log.replayed_partition import EpochPartition, ReplayedPartition
from topics.catalogue import EVENTS
from topics.epoch import Epoch
from topics.kafka.reader import LogTruncated, read_records


class LogTruncatedByRetention(LookupError):
    """The log no longer has what has to be replayed."""

    def __init__(self, partition: int, needed: int, begin: int) -> None:
        super().__init__(
            f"partition {partition} begins at offset {begin}, {needed} is needed: retention has "
            "taken the beginning. Start from a snapshot: --snapshot FILE, written in time by "
            "`headstart thresholds snapshot FILE`"
        )


async def replay_partition(
    kafka: str,
    partition: int,
    epoch: Epoch,
    rules: LearningConfig,
    rows: Rows,
    log: range,
    seen: Callable[[RecordBatch], Any],
    *,
    reference: bool = False,
) -> Rows:
    """Return the rows after the last offset of `log`, deleted ones included.

    `rows`: what to begin with, the state at some offset of this epoch or before. `log`: the offsets
    that the broker has and that are to be applied. `seen` is awaited for every batch read.
    `reference`: see `ReplayedPartition`. Raises `LogTruncatedByRetention` where `rows` end before
    `log` begins, or retention takes some of it meanwhile.
    """
    at = EpochPartition(partition, epoch.partitions, epoch.number)
    following = ReplayedPartition(at, rules, rows, reference=reference)
    read = partial(read_all, kafka, partition)
    begin = following.applied_offset + 1
    if begin < log.start and log.start < log.stop:
        raise LogTruncatedByRetention(partition, begin, log.start)
    async for batch in read(range(begin, log.stop)):
        for takeover in following.apply(batch):
            await feed(takeover, read)
        await seen(batch)
    return following.table


def commits(core: PartitionTask, batch: RecordBatch) -> Iterator[Checkpoint]:
    """Apply a batch whole; yield what changed, a commit at a time."""
    position = 0
    while position < len(batch):
        position = core.apply(batch, position)
        yield core.commit()


async def read_all(kafka: str, partition: int, log: range) -> AsyncIterator[RecordBatch]:
    """Yield as `read_batches`. Raises `LogTruncatedByRetention` where retention took some of it."""
    try:
        async for batch in read_batches(kafka, partition, log):
            yield batch
    except LogTruncated as error:
        if error.begin <= error.offset:
            raise  # the log was replaced; a snapshot does not help
        raise LogTruncatedByRetention(partition, error.offset, error.begin) from error


async def read_batches(kafka: str, partition: int, log: range) -> AsyncIterator[RecordBatch]:
    """Yield the records of one partition of `headstart.events` in batches.

    Raises `LogTruncated` where retention is faster, after all that was read before.
    """
    records = read_records(kafka, EVENTS.name, {partition: log.start}, {partition: log.stop})
    async for batch in batched(records, EVENTS.name, partition, log.start):
        yield batch
