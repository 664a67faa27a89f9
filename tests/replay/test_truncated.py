"""Records that retention deletes, also during a read, are reported, and no others are lost."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from collections.abc import Callable, Iterator

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from bench.support.measuring import produce
from deploy.local import Addresses, Stack, StackConfig
from learners.registry import policy
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from replay.execution.runner import Backtest, named, run_backtest
from replay.log.replay import LogTruncatedByRetention, replay_partition
from replay.predictions.notes import Notes
from replay.results.summary import report
from replay.sources.base import NothingThere, ReadOptions, TimeRange
from replay.sources.broker import BrokerSource
from topics.catalogue import EVENTS
from topics.epoch import ensure_topics, read_epoch
from topics.kafka.admin import admin_client
from topics.kafka.reader import LogTruncated, read_records, topic_state

pytestmark = [
    pytest.mark.integration,
    pytest.mark.apache,
    pytest.mark.skipif(
        not (shutil.which("java") and shutil.which("mvn")), reason="needs java and mvn"
    ),
]

RECORDS, BYTES = 600, 10_000
"""Six fetches of a megabyte, of which two are read before the first batch is given."""
TAKEN = 500
MID_READ, WHOLE, REPLAYED, BARE, BESIDE, BACKTESTED, QUIET, EMPTIED, PARTITIONS = range(9)
"""Partitions, one for each test: what is deleted in one is nothing to another."""


@pytest.fixture(scope="module")
def kafka(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = StackConfig(
        data=tmp_path_factory.mktemp("stack"),
        kafka="apache",
        postgres=addresses.postgres,
        redis=addresses.redis,
    )
    with Stack(config) as stack:
        asyncio.run(ensure_topics(stack.addresses.kafka, partitions=PARTITIONS))
        yield stack.addresses.kafka


def fill(kafka: str, partition: int, count: int = RECORDS) -> None:
    """Add records that are not events, which readers ignore."""
    asyncio.run(produce(kafka, ((partition, b"k", b"x" * BYTES) for _ in range(count))))


async def delete(kafka: str, partition: int, before: int) -> None:
    async with admin_client(kafka) as client:
        place = TopicPartition(EVENTS.name, partition)
        await client.delete_records({place: RecordsToDelete(before)})


def only(partition: int, **more: bool) -> ReadOptions:
    end = {each: 0 for each in range(PARTITIONS) if each != partition}
    return ReadOptions(range=TimeRange(end=end), **more)


class Truncating(BrokerSource):
    """A history of which retention takes a piece once a first batch was read."""

    def batches(self, unit: int, notes: Notes) -> Iterator[tuple[RecordBatch, float]]:
        for number, found in enumerate(super().batches(unit, notes)):
            yield found
            if not number:
                asyncio.run(delete(self.kafka, unit, TAKEN))


def test_a_history_continues_behind_deleted_records_and_reports_them(kafka: str) -> None:
    fill(kafka, MID_READ)
    history, notes = Truncating(kafka, only(MID_READ)), Notes()
    found = list(history.batches(MID_READ, notes))
    offsets = [offset for batch, _ in found for offset in batch.offsets]
    first = next(place for place, offset in enumerate(offsets) if place != offset)
    assert 0 < first < TAKEN
    assert offsets == [*range(first), *range(TAKEN, RECORDS)]
    assert notes.warnings == [
        f"partition {MID_READ}: offsets {first} to {TAKEN - 1} were taken by retention while they "
        "were read; the archive in Postgres may have them (--source archive)"
    ]
    assert found[-1][1] == 1.0


def test_a_backtest_goes_on(kafka: str) -> None:
    fill(kafka, BACKTESTED)
    work = Backtest(Truncating(kafka, only(BACKTESTED)), named(["td"]))
    [unit] = run_backtest(work, lambda _: None, processes=1)
    assert RECORDS - TAKEN < unit.notes.records < RECORDS
    [warning] = unit.notes.warnings
    assert f"to {TAKEN - 1} were taken by retention" in warning


def test_a_history_that_must_be_complete_fails_with_where_to_begin(kafka: str) -> None:
    fill(kafka, WHOLE)
    history = Truncating(kafka, only(WHOLE, whole=True))
    with pytest.raises(LogTruncated, match=f"--from-offset {WHOLE}:{TAKEN}") as caught:
        list(history.batches(WHOLE, Notes()))
    assert EVENTS.name in str(caught.value)
    assert f"partition {WHOLE}: cannot read offset {caught.value.offset}" in str(caught.value)
    assert 0 < caught.value.offset < TAKEN
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_log_that_is_replayed_is_cut(kafka: str) -> None:
    """So it is for verify and rebuild, which need every record."""
    fill(kafka, REPLAYED)

    async def run() -> None:
        async def seen(batch: RecordBatch) -> None:
            await delete(kafka, REPLAYED, TAKEN)

        epoch, rules = await read_epoch(kafka), LearningConfig(policy("td"))
        with pytest.raises(
            LogTruncatedByRetention, match=f"partition {REPLAYED} begins at offset {TAKEN}"
        ):
            await replay_partition(kafka, REPLAYED, epoch, rules, {}, range(RECORDS), seen)

    asyncio.run(run())


def test_records_are_read_from_where_they_are(kafka: str) -> None:
    """What lies behind the end of one partition may be taken while another is read."""
    fill(kafka, BARE)
    fill(kafka, BESIDE)

    async def read(begin: dict[int, int], end: dict[int, int]) -> list[int]:
        found = []
        async for record in read_records(kafka, EVENTS.name, begin, end):
            if record.partition == BARE:
                if not found:
                    await delete(kafka, BESIDE, TAKEN)
                found.append(record.offset)
        return found

    both = {BARE: 0, BESIDE: 0}, {BARE: RECORDS, BESIDE: 1}
    assert asyncio.run(read(*both)) == [*range(RECORDS)]
    with pytest.raises(LogTruncated, match="cannot read offset 1") as caught:
        asyncio.run(read({BESIDE: 1}, {BESIDE: 2}))
    assert caught.value.begin == TAKEN
    with pytest.raises(LogTruncated, match="this is a new log"):
        asyncio.run(read({BESIDE: RECORDS + 5}, {BESIDE: RECORDS + 9}))


def test_a_follower_continues_with_the_oldest_record(kafka: str) -> None:
    fill(kafka, QUIET)
    asyncio.run(delete(kafka, QUIET, TAKEN))

    async def first() -> int:
        records = read_records(kafka, EVENTS.name, {QUIET: 3})
        try:
            return int((await anext(records)).offset)
        finally:
            await records.aclose()

    assert asyncio.run(first()) == TAKEN


@pytest.fixture
def warnings_of(kafka: str) -> Callable[[TimeRange, int], list[str]]:
    def warnings_of(span: TimeRange, partition: int) -> list[str]:
        notes = Notes()
        history = BrokerSource(kafka, ReadOptions(range=span))
        list(history.batches(partition, notes))
        return notes.warnings

    return warnings_of


def test_a_deleted_beginning_is_reported_unasked(
    kafka: str, warnings_of: Callable[[TimeRange, int], list[str]]
) -> None:
    fill(kafka, EMPTIED, 10)
    asyncio.run(delete(kafka, EMPTIED, 4))
    everything = BrokerSource(kafka, only(EMPTIED))
    [batch] = [batch for batch, _ in everything.batches(EMPTIED, Notes())]
    assert batch.offsets == [*range(4, 10)]
    first, last = batch.timestamps[0], batch.timestamps[-1]
    begins = f"partition {EMPTIED} begins at offset 4: retention has taken the 4 before it"
    archive = "; the archive in Postgres may have them (--source archive)"
    timed = f"{begins}, of which some may be in the range of time{archive}"
    assert warnings_of(TimeRange(), EMPTIED) == [begins + archive]
    assert warnings_of(TimeRange(end={EMPTIED: 2}), EMPTIED) == [
        f"{begins.replace('the 4', 'the 2')}{archive}"
    ]
    assert warnings_of(TimeRange(since=first - 1000), EMPTIED) == [timed]
    assert warnings_of(TimeRange(until=last + 1000), EMPTIED) == [timed]
    assert warnings_of(TimeRange(begin={EMPTIED: 4}), EMPTIED) == []
    asyncio.run(asyncio.sleep(0.01))  # or what comes next may be of the same millisecond
    fill(kafka, EMPTIED, 1)
    assert warnings_of(TimeRange(since=last + 1), EMPTIED) == []


def test_an_emptied_partition_is_reported_too(
    kafka: str, warnings_of: Callable[[TimeRange, int], list[str]]
) -> None:
    fill(kafka, EMPTIED, 1)
    end = asyncio.run(all_taken(kafka, EMPTIED))
    fill(kafka, QUIET, 1)
    [warning] = warnings_of(TimeRange(), EMPTIED)
    assert warning.startswith(f"partition {EMPTIED} begins at offset {end}: retention has taken")
    work = Backtest(BrokerSource(kafka, ReadOptions()), named(["td"]))
    units = run_backtest(work, lambda _: None, processes=1)
    assert warning in report("x", work.policies, units)["read"]["warnings"]
    with pytest.raises(NothingThere):
        BrokerSource(kafka, only(EMPTIED)).units()


async def all_taken(kafka: str, partition: int) -> int:
    """Delete every record of a partition; return where it begins and ends then."""
    end = (await topic_state(kafka, EVENTS.name)).end[partition]
    await delete(kafka, partition, end)
    return end
