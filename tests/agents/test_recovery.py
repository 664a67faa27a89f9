"""A table restored from a real changelog: whole, and from where that is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import faust
import pytest

from agents.producer import BatchProducer
from agents.thresholds.clients import Clients
from agents.thresholds.completeness import complete_from, completeness
from agents.thresholds.recovery import Recovered, Restoring, recover
from agents.thresholds.store import ContextStore, new_table
from processing.state.rows import (
    PARTITION_KEY,
    TaskStateRow,
    deleted,
    encode_partition,
    with_version,
)
from replay.log.live_table import read_table
from topics.catalogue import CHANGELOG, CONTEXTS_TABLE
from topics.kafka.reader import topic_state

T = TypeVar("T")
PARTITIONS = 4


def row(offset: int) -> bytes:
    return with_version(deleted(0, 0), 1, offset)


@pytest.fixture
def store(tmp_path: Path) -> ContextStore:
    app = faust.App("headstart-t", datadir=tmp_path, store="memory://", autodiscover=False)
    return new_table(app, CONTEXTS_TABLE, partitions=PARTITIONS, epoch=1).data


async def _appending(kafka: str, work: Callable[[BatchProducer], Awaitable[T]]) -> T:
    producer = BatchProducer(kafka)
    await producer.start()
    try:
        return await work(producer)
    finally:
        await producer.stop()


@pytest.mark.integration
@pytest.mark.usefixtures("log_epoch")
def test_an_empty_store_begins_where_the_log_is_complete(kafka: str, store: ContextStore) -> None:
    async def append(producer: BatchProducer) -> tuple[int, int]:
        await producer.send_rows(CHANGELOG.name, 1, [(b"before", row(1)), (b"a", row(2))])
        begin, _ = await producer.send_rows(CHANGELOG.name, 1, [(b"a", row(2))])
        rows = [(b"b", row(3)), (b"c", None), (b"d", row(4))]
        _, last = await producer.send_rows(CHANGELOG.name, 1, rows, [completeness(begin)])
        return begin, last

    begin, last = asyncio.run(_appending(kafka, append))
    found = asyncio.run(recover(store, Clients(), kafka, [0, 1]))
    assert found == {0: Recovered(set(), 0), 1: Recovered(set(), begin)}
    assert dict(store.scan(1)) == {b"a": row(2), b"b": row(3), b"d": row(4)}
    assert store.held_offset(1) == last


@pytest.mark.integration
@pytest.mark.usefixtures("log_epoch")
def test_a_store_that_holds_something_goes_on_behind_it(kafka: str, store: ContextStore) -> None:
    async def append(producer: BatchProducer) -> int:
        first, _ = await producer.send_rows(CHANGELOG.name, 2, [(b"a", row(1))])
        store.write_rows(2, [(b"a", row(1)), (b"z", row(0))], first)
        await producer.send_rows(CHANGELOG.name, 2, [(b"z", None), (b"b", row(2))])
        again = [(b"a", row(1)), (b"b", row(2))]
        begin, _ = await producer.send_rows(CHANGELOG.name, 2, again, [completeness(first + 3)])
        return begin

    begin = asyncio.run(_appending(kafka, append))
    found = asyncio.run(recover(store, Clients(), kafka, [2]))
    assert found == {2: Recovered(set(), begin)}
    assert dict(store.scan(2)) == {b"a": row(1), b"b": row(2)}, "keys with tombstones are gone"


def test_a_missing_offset_means_the_whole_log() -> None:
    assert complete_from([]) == 0
    assert complete_from([("other", b"7")]) == 0
    assert complete_from([("headstart.complete-from", b"-1")]) == 0
    assert complete_from([completeness(12)]) == 12


@pytest.mark.integration
@pytest.mark.usefixtures("log_epoch")
def test_a_record_that_is_no_row_is_passed_over(kafka: str, store: ContextStore) -> None:
    async def append(producer: BatchProducer) -> None:
        foreign = [b"{}", b'{"mode": "act", "at": 1}', deleted(2**53 + 1, 0), deleted(1, -2)]
        rows = [
            (b"kept", row(2)),
            *((key, value) for value in foreign for key in (b"foreign", b"kept")),
            (b"last", row(3)),
        ]
        await producer.send_rows(CHANGELOG.name, 3, rows)

    asyncio.run(_appending(kafka, append))
    found = asyncio.run(recover(store, Clients(), kafka, [3]))[3]
    assert dict(store.scan(3)) == {b"kept": row(2), b"last": row(3)}
    assert found.stale_keys == {b"kept"}, "it is appended again"
    state = asyncio.run(topic_state(kafka, CHANGELOG.name))
    table = asyncio.run(read_table(kafka, state, 3, 1))
    assert table.rows == {}, "rows that are deleted"


def own(epoch: int, offset: int) -> tuple[bytes, bytes]:
    return PARTITION_KEY, encode_partition(TaskStateRow(), epoch, offset)


@pytest.mark.integration
@pytest.mark.usefixtures("log_epoch")
@pytest.mark.parametrize("breaks_off", [False, True])
def test_rows_of_an_older_epoch_are_dropped_if_the_changelog_has_the_partition(
    kafka: str, store: ContextStore, monkeypatch: pytest.MonkeyPatch, breaks_off: bool
) -> None:
    partition = 2 if breaks_off else 1
    store.epoch = 5
    old = with_version(b"x" * 20, 3, 9)
    store.write_rows(partition, [(b"kept", old), (b"zombie", old), own(3, 9)], None)
    new = with_version(b"y" * 20, 5, -1)

    async def append(producer: BatchProducer) -> None:
        await producer.send_rows(CHANGELOG.name, partition, [(b"kept", new), own(5, -1)])

    asyncio.run(_appending(kafka, append))
    if breaks_off:
        real = ContextStore.write_rows

        def write_rows(self: ContextStore, *arguments: Any) -> None:
            real(self, *arguments)
            raise OSError("killed")

        monkeypatch.setattr(ContextStore, "write_rows", write_rows)
        with pytest.raises(OSError, match="killed"):
            asyncio.run(recover(store, Clients(), kafka, [partition]))
        monkeypatch.undo()
    asyncio.run(recover(store, Clients(), kafka, [partition]))
    rows = dict(store.scan(partition))
    assert {key: rows[key] for key in (b"kept", PARTITION_KEY)} == dict(
        [(b"kept", new), own(5, -1)]
    )
    assert b"zombie" not in rows


@pytest.mark.integration
@pytest.mark.usefixtures("log_epoch")
def test_rows_of_an_older_epoch_stay_while_the_changelog_lacks_the_partition(
    kafka: str, store: ContextStore
) -> None:
    store.epoch = 5
    old = with_version(b"x" * 20, 3, 9)
    rows = [(b"a", old), (b"b", old), own(3, 9)]
    store.write_rows(0, rows, None)

    async def append(producer: BatchProducer) -> None:
        # A migration that broke off, by a worker whose rows may have been older.
        await producer.send_rows(CHANGELOG.name, 0, [(b"a", with_version(b"y" * 20, 5, -1))])

    asyncio.run(_appending(kafka, append))
    asyncio.run(recover(store, Clients(), kafka, [0]))
    assert dict(store.scan(0)) == dict(rows)


@pytest.mark.integration
@pytest.mark.usefixtures("log_epoch")
def test_rows_that_a_broken_restore_left_of_an_older_epoch_are_dropped(
    kafka: str, store: ContextStore
) -> None:
    store.write_rows(0, [(b"left", with_version(b"x" * 20, 1, 9))], 4)
    store.epoch = 5
    asyncio.run(recover(store, Clients(), kafka, [0]))
    assert b"left" not in dict(store.scan(0))


def test_a_record_without_a_key_is_passed_over(store: ContextStore) -> None:
    restoring = Restoring(store, 3)
    for end in (2, 4):
        restoring.apply([None, b"kept"], [row(2), row(end)], end)
        restoring.write(end - 1)
    assert dict(store.scan(3)) == {b"kept": row(4)}
    assert restoring.stale_keys == set()
