"""The log on the broker as a source, read by partition and without a consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from headstart.connections.kafka_connections import new_consumer
from headstart.kafka_producer import BrokerUnreachable
from processing.records.batch import RecordBatch
from replay.log.purges import leave_out_purged, read_log_purges
from replay.log.replay import read_batches
from replay.predictions.notes import Notes
from replay.sources.base import (
    NothingThere,
    ReadOptions,
    largest_first,
    pulled,
)
from topics.catalogue import EVENTS
from topics.epoch import read_epoch
from topics.kafka.fetch_patch import ISOLATION
from topics.kafka.reader import LogTruncated, read_records, topic_state
from topics.kafka.topic_states import TopicState

ARCHIVE: Final = "the archive in Postgres may have them (--source archive)"


@dataclass(frozen=True)
class BrokerSource:
    """`headstart.events` of a broker; records lost to retention are warned about."""

    kafka: str
    reading: ReadOptions
    operators_key: bytes | None = field(default=None, repr=False)
    """That purges must be signed with, where it is set: what they cover is left out."""
    live = True

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{EVENTS.name} on {self.kafka}"

    def log(self) -> tuple[int, int]:
        """Return the log's epoch and how many partitions it has."""
        epoch = asyncio.run(read_epoch(self.kafka))
        return epoch.number, epoch.partitions

    def units(self) -> list[int]:
        """Return the partitions that have records in the range, or had some."""
        found = asyncio.run(log_ranges(self.kafka, self.reading))
        # Also those of which retention took the whole range: reading them warns.
        sizes = {unit: len(log) for unit, (log, lost) in found.items() if log or lost}
        if not any(sizes.values()):
            raise NothingThere(
                f"{self.name} holds no records in the range; `headstart topics describe "
                f"{EVENTS.name}` shows its offsets, and --since takes 2h, 3d or a date"
            )
        return largest_first(sizes)

    def batches(self, unit: int, notes: Notes) -> Iterator[tuple[RecordBatch, float]]:
        """Yield a partition's records in order. Raises `LogTruncated` where they must be whole."""
        with asyncio.Runner() as runner:
            log, lost = runner.run(log_ranges(self.kafka, self.reading))[unit]
            if lost:
                notes.warnings.append(self._lost(unit, log.start, lost))
            until = self.reading.range.until
            purges = runner.run(read_log_purges(self.kafka, self.operators_key, {unit: None}))[unit]
            for batch in self._batches(runner, unit, log, notes):
                if until is not None and batch.timestamps[-1] >= until:
                    _drop_from(batch, until)
                leave_out_purged(batch, purges)
                if len(batch):
                    yield batch, (batch.end - log.start) / max(1, len(log))

    def _lost(self, unit: int, begin: int, lost: int) -> str:
        span = self.reading.range
        timed = span.since is not None or span.until is not None
        note = ", of which some may be in the range of time" if timed else ""
        return (
            f"partition {unit} begins at offset {begin}: retention has taken the {lost} before "
            f"it{note}; {ARCHIVE}"
        )

    def _batches(
        self, runner: asyncio.Runner, unit: int, log: range, notes: Notes
    ) -> Iterator[RecordBatch]:
        """Yield records; where retention is faster, continue at the new beginning."""
        while log:
            try:
                yield from pulled(runner, read_batches(self.kafka, unit, log))
                return
            except LogTruncated as error:
                if self.reading.whole or error.begin <= error.offset:
                    raise
                log = range(min(error.begin, log.stop), log.stop)
                notes.warnings.append(
                    f"partition {unit}: offsets {error.offset} to {log.start - 1} were taken by "
                    f"retention while they were read; {ARCHIVE}"
                )


def _drop_from(batch: RecordBatch, until: int) -> None:
    """Remove the records from `until` on."""
    kept = [place for place, at in enumerate(batch.timestamps) if at < until]
    columns: tuple[list[Any], ...] = (batch.offsets, batch.timestamps, batch.keys, batch.values)
    for column in columns:
        column[:] = [column[place] for place in kept]


async def log_ranges(kafka: str, reading: ReadOptions) -> dict[int, tuple[range, int]]:
    """Return the offsets of a range by partition, and how many before them retention took.

    Of those it cannot be known when they were: in a range of time they are counted wherever no
    record is left that is older. Raises `BrokerUnreachable` and `TopicsMissing`.
    """
    span = reading.range
    while True:
        state = await topic_state(kafka, EVENTS.name)
        try:
            since = await _offsets_at(kafka, state, span.since)
            until = await _offsets_at(kafka, state, span.until)
        except LogTruncated:
            continue  # it begins later now
        break
    found = {}
    for partition, there in state.begin.items():
        asked, last = span.begin.get(partition, 0), state.end[partition]
        first = there if span.since is None else since.get(partition, last)
        end = min(span.end.get(partition, last), until.get(partition, last), last)
        begin = max(asked, first)
        gone = range(asked, min(there, span.end.get(partition, there)))
        found[partition] = range(begin, max(begin, end)), len(gone) if first == there else 0
    return found


async def _offsets_at(kafka: str, state: TopicState, at: int | None) -> dict[int, int]:
    """Return the first offsets at or after a time; partitions without one are left out.

    A broker's answer may lie before it (the embedded one names the batch, or the beginning where
    there is none), so the records themselves are looked at.
    """
    if at is None:
        return {}
    begin, found = await _answered(kafka, state, at), dict[int, int]()
    async with aclosing(read_records(kafka, EVENTS.name, begin, state.end)) as records:
        async for record in records:
            if record.timestamp >= at and record.partition not in found:
                found[record.partition] = record.offset
                if len(found) == len(begin):
                    break
    return found


async def _answered(kafka: str, state: TopicState, at: int) -> dict[int, int]:
    """Return the broker's offsets at a time. Raises `BrokerUnreachable`."""
    consumer = new_consumer(kafka, enable_auto_commit=False, isolation_level=ISOLATION)
    try:
        await consumer.start()
        wanted = {TopicPartition(EVENTS.name, partition): at for partition in state.begin}
        found = await consumer.offsets_for_times(wanted)
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    finally:
        await consumer.stop()
    return {
        tp.partition: max(each.offset, state.begin[tp.partition])
        for tp, each in found.items()
        if each is not None
    }
