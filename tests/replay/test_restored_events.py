"""The saved end of a log is written as a stream: continued where it broke off, memory bounded."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headstart.kafka_producer import start_producer
from replay.backup import restored_log
from replay.backup.manifest import Manifest
from replay.backup.packed_files import PackedWriter
from replay.backup.record_writer import send_saved
from replay.backup.restored_log import LogNotEmpty, RestoredLog
from replay.backup.saved_records import SavedRecord, record_line
from topics.catalogue import Topic
from topics.epoch import Epoch
from topics.kafka.admin import create_topics
from topics.kafka.reader import read_records, topic_state

pytestmark = pytest.mark.integration

PARTITIONS, STORED, APPLIED = 2, 7, 4
"""Of the old log: first offset that the tables lack, last one applied."""


@pytest.fixture
def topic(kafka: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An events topic of this test's own."""
    own = Topic(f"test.{uuid4().hex}", "", "", partitioned=True, cleanup="delete")
    asyncio.run(create_topics(kafka, PARTITIONS, topics=(own,)))
    monkeypatch.setattr(restored_log, "EVENTS", own)
    return own.name


def saved(folder: Path, kafka: str, count: int, value_bytes: int = 20) -> RestoredLog:
    """Return what writes `count` saved events of each partition, in a shuffled order of those."""
    with PackedWriter(folder, "log_end.jsonl.zst") as file:
        for number in range(count):
            for place in range(PARTITIONS):
                value = b"%d %d " % (place, number) + os.urandom(value_bytes).hex().encode()
                record = SavedRecord(place, APPLIED + 1 + number, 1, b"key", value)
                file.add(record_line(record))
        files = (file.finish("events"),)
    offsets = dict.fromkeys(range(PARTITIONS), APPLIED)
    stored = dict.fromkeys(range(PARTITIONS), STORED)
    manifest = Manifest(
        1, "b", 1, "1", "18", 7, PARTITIONS, (), (), (), offsets, stored, stored, files
    )
    return RestoredLog(folder, manifest, Epoch(8, PARTITIONS), kafka)


async def sent(kafka: str, topic: str, records: Iterable[SavedRecord]) -> None:
    producer = await start_producer(kafka)
    try:
        await send_saved(producer, topic, records)
    finally:
        await producer.stop()


async def log_of(kafka: str, topic: str) -> list[list[bytes]]:
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    state = await topic_state(kafka, topic)
    async for record in read_records(kafka, topic, state.begin, state.end):
        found[record.partition].append(record.value)
    return found


def test_what_an_interrupted_restore_has_written_is_continued(
    kafka: str, topic: str, tmp_path: Path
) -> None:
    log = saved(tmp_path, kafka, 30)
    records = list(log._saved("events", topic))
    wanted = [[each.value for each in records if each.partition == n] for n in range(PARTITIONS)]
    first = [each for each in records if each.partition == 0][:5]
    asyncio.run(sent(kafka, topic, first))
    stored = asyncio.run(log.write_events((), None))
    assert stored == dict.fromkeys(range(PARTITIONS), STORED - APPLIED - 1)
    assert asyncio.run(log_of(kafka, topic)) == wanted
    assert asyncio.run(log.write_events((), None)) == stored
    assert asyncio.run(log_of(kafka, topic)) == wanted, "a third time changes nothing"


@pytest.mark.parametrize("foreign", ["value", "key", "order", "more"])
def test_nothing_is_written_to_a_log_that_has_other_records(
    kafka: str, topic: str, tmp_path: Path, foreign: str
) -> None:
    log = saved(tmp_path, kafka, 10)
    here = [each for each in log._saved("events", topic) if each.partition == 1]
    change: dict[str, Any] = {
        "value": [here[0], here[1]._replace(value=here[2].value)],
        "key": [here[0]._replace(key=b"other")],
        "order": [here[1], here[0]],
        "more": [*here, here[0]],
    }
    asyncio.run(sent(kafka, topic, change[foreign]))
    before = asyncio.run(log_of(kafka, topic))
    with pytest.raises(LogNotEmpty):
        asyncio.run(log.write_events((), None))
    assert asyncio.run(log_of(kafka, topic)) == before


def test_memory_holds_a_bounded_part_of_the_log(kafka: str, topic: str, tmp_path: Path) -> None:
    count, value_bytes, bound = 10_000, 1_000, 20_000_000
    log = saved(tmp_path, kafka, count, value_bytes)
    tracemalloc.start()
    try:
        asyncio.run(log.write_events((), None))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum((asyncio.run(topic_state(kafka, topic))).end.values()) == PARTITIONS * count
    assert most < bound < PARTITIONS * count * value_bytes * 2, f"{most:,} bytes"
