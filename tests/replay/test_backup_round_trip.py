"""A backup of one system and its restore into another, without workers: rows, offsets, versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deploy.local import Addresses, Stack, StackConfig
from deploy.system import prepare
from headstart.events.schema import new_id
from headstart.kafka_producer import start_producer
from processing.records.partitioner import partition_for
from processing.state.rows import CONTEXT, PARTITION_KEY, with_version
from replay.backup import restored_tables
from replay.backup.create import BackupSource, SinksBehind, create_backup
from replay.backup.record_writer import send_saved
from replay.backup.restore import RestoreTarget, restore_backup
from replay.backup.restored_tables import CannotRestore
from replay.backup.saved_records import SavedRecord
from replay.log.live_table import read_whole_table
from sinks.epochs import remember_epoch
from topics.catalogue import CHANGELOG, EPISODES_GROUP, EVENTS
from topics.control.messages import Purge
from topics.epoch import Epoch, read_epoch
from topics.kafka.reader import read_records, topic_state

PARTITIONS, CONTEXTS, EVENT_ROWS = 4, 60, 300
APPLIED, STORED, END = 9, 12, 15
"""Offsets of each partition: last one applied, first one not stored, end."""
ROWS = """
    INSERT INTO episodic_events
        (id, tenant, event_type, workflow_type, workflow_id, timestamp, data)
    SELECT gen_random_uuid(), 'acme', 'task_complete', 'refund', 'w' || g,
        now() - g * interval '10 minutes', jsonb_build_object('number', g, 'text', E'a\\tb\\n')
    FROM generate_series(1, %s) g
"""
OTHER_LOG = "UPDATE sink_offsets SET epoch = epoch - 1 WHERE consumer = 'headstart-restore'"
INDEXES = """
    SELECT tablename, regexp_replace(indexdef, 'INDEX \\S+ ON', 'ON') FROM pg_indexes
    WHERE schemaname = 'public' ORDER BY 1, 2
"""
DIGEST = "SELECT count(*), sum(hashtextextended(x::text, 0)) FROM episodic_events x"


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[tuple[Addresses, Addresses]]:
    """Two systems without workers."""
    first, second = (Stack(StackConfig(data=tmp_path / name, kafka="embedded")) for name in "ab")
    with first, second:
        epoch = asyncio.run(prepare(first.addresses, PARTITIONS))
        # Epochs are Unix seconds: this one would be the same.
        asyncio.run(remember_epoch(second.addresses.redis, epoch.number))
        asyncio.run(prepare(second.addresses, PARTITIONS))
        yield first.addresses, second.addresses


def fill(at: Addresses) -> None:
    epoch = asyncio.run(read_epoch(at.kafka))
    with psycopg.connect(at.postgres) as connection:
        connection.execute("SELECT add_event_partition((now() AT TIME ZONE 'UTC')::date)")
        connection.execute(ROWS.encode(), (EVENT_ROWS,))
        for number in range(PARTITIONS):
            row = (EPISODES_GROUP, EVENTS.name, epoch.number, number, STORED)
            connection.execute("INSERT INTO sink_offsets VALUES (%s, %s, %s, %s, %s)", row)
    asyncio.run(_fill_log(at.kafka, epoch))


async def _fill_log(kafka: str, epoch: Epoch) -> None:
    producer = await start_producer(kafka)
    rows = []
    for number in range(CONTEXTS):
        kind = f"type-{number % 7}"
        key = CONTEXT + f"acme\x1fworkflow_type={kind}/user_id=u{number}".encode()
        place = partition_for("acme", kind, PARTITIONS)
        rows.append(SavedRecord(place, -1, None, key, with_version(bytes(80), epoch.number, 5)))
    own = with_version(bytes(60), epoch.number, APPLIED)
    rows += [SavedRecord(n, -1, None, PARTITION_KEY, own) for n in range(PARTITIONS)]
    await send_saved(producer, CHANGELOG.name, rows)
    events = [
        SavedRecord(n, -1, None, b"k", b"%d" % offset, (("h", b"v"),))
        for n in range(PARTITIONS)
        for offset in range(END)
    ]
    await send_saved(producer, EVENTS.name, events)
    await producer.stop()


def digest(at: Addresses) -> Any:
    with psycopg.connect(at.postgres) as connection:
        return connection.execute(DIGEST).fetchone()


def indexes(at: Addresses) -> list[Any]:
    with psycopg.connect(at.postgres) as connection:
        return connection.execute(INDEXES).fetchall()


async def log_of(kafka: str) -> list[list[bytes]]:
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    state = await topic_state(kafka, EVENTS.name)
    async for record in read_records(kafka, EVENTS.name, state.begin, state.end):
        found[record.partition].append(record.value)
    return found


def test_rows_offsets_and_versions_are_restored(
    stacks: tuple[Addresses, Addresses], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stacks
    monkeypatch.setattr(restored_tables, "INDEXES_AFTER", EVENT_ROWS)
    fill(first)
    folder, lines = tmp_path / "backup", list[str]()
    source = BackupSource(first.kafka, first.postgres, "1.0")
    manifest = asyncio.run(create_backup(source, folder, lines.append, 0.0))
    assert manifest.applied == dict.fromkeys(range(PARTITIONS), APPLIED)
    target = RestoreTarget(second.kafka, second.postgres)
    with pytest.raises(CannotRestore, match="--no-later-purges"):
        asyncio.run(restore_backup(folder, target, None, lines.append))
    purge = Purge(new_id(), 1, "acme", user_id="u1")
    result = asyncio.run(restore_backup(folder, target, [purge], lines.append))
    assert (result.contexts, result.purges) == (CONTEXTS, 1)
    assert result.again == PARTITIONS * (END - APPLIED - 1)

    assert digest(second) == digest(first)
    assert indexes(second) == indexes(first) != []
    epoch = asyncio.run(read_epoch(second.kafka))
    tables = asyncio.run(read_whole_table(second.kafka, epoch))
    assert sum(len(each.begin) for each in tables.values()) == CONTEXTS + PARTITIONS
    for written in asyncio.run(log_of(second.kafka)):
        assert written[:-1] == [b"%d" % offset for offset in range(APPLIED + 1, END)]
        assert purge.id.encode() in written[-1]
    with psycopg.connect(second.postgres) as connection:
        query = "SELECT next_offset FROM sink_offsets WHERE consumer = %s AND epoch = %s"
        found = connection.execute(query, (EPISODES_GROUP, epoch.number)).fetchall()
    assert found == [(STORED - APPLIED - 1,)] * PARTITIONS
    assert asyncio.run(restore_backup(folder, target, [], lines.append)).already
    with psycopg.connect(second.postgres) as connection:
        connection.execute(OTHER_LOG)
    with pytest.raises(CannotRestore, match="its log is another one"):
        asyncio.run(restore_backup(folder, target, [], lines.append))


def test_no_backup_is_written_while_postgres_lacks_what_was_learned(
    stacks: tuple[Addresses, Addresses], tmp_path: Path
) -> None:
    first, _second = stacks
    fill(first)
    with psycopg.connect(first.postgres) as connection:
        connection.execute("UPDATE sink_offsets SET next_offset = 3 WHERE partition = 1")
    source = BackupSource(first.kafka, first.postgres, "1.0")
    with pytest.raises(SinksBehind, match="lacks 7 records"):
        asyncio.run(create_backup(source, tmp_path / "backup", print, 0.0))
    assert not [each for each in tmp_path.iterdir() if "backup" in each.name]
