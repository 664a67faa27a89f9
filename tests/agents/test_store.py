"""The local store: rows and the changelog offset they came from, written together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import faust
import pytest
from faust.types import TP

from agents.thresholds import recovery
from agents.thresholds.recovery import Restoring
from agents.thresholds.store import ContextStore, new_table
from processing.state.rows import deleted, with_version
from topics.catalogue import CHANGELOG, CONTEXTS_TABLE

P = 2
PARTITIONS = 4
CHANGELOG_TP = TP(CHANGELOG.name, P)

Open = Callable[..., ContextStore]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Open the store of one data directory, as a worker does, in a given epoch."""

    made: list[ContextStore] = []

    def make(epoch: int = 5) -> ContextStore:
        for partition in range(PARTITIONS) if made else ():
            made[-1].release(partition)  # it holds RocksDB's lock
        app = faust.App(
            "headstart-thresholds", datadir=tmp_path, store="memory://", autodiscover=False
        )
        made.append(new_table(app, CONTEXTS_TABLE, partitions=PARTITIONS, epoch=epoch).data)
        return made[-1]

    return make


def test_write_get_delete(opened: Open) -> None:
    store = opened()
    assert store.get_row(P, b"a") is None
    store.write_rows(P, [(b"a", b"1"), (b"b", b"2")], 10)
    assert (store.get_row(P, b"a"), store.get_row(P, b"b")) == (b"1", b"2")
    assert store.get_row(P + 1, b"a") is None
    store.write_rows(P, [(b"a", None), (b"b", b"3")], 12)
    assert (store.get_row(P, b"a"), store.get_row(P, b"b")) == (None, b"3")


def test_progress_is_reported_once_it_is_open(opened: Open) -> None:
    store = opened()
    assert store.restored_offsets() == {}
    store.write_rows(P, [(b"a", b"1")], 10)
    store.write_rows(P + 1, [(b"a", b"1")], None)
    assert store.restored_offsets() == {P: 10}


def test_scan_shows_rows_and_nothing_of_its_own(opened: Open) -> None:
    store = opened()
    rows = [(b"%03d" % number, b"row %d" % number) for number in range(300)]
    store.write_rows(P, rows, 299)
    assert list(store.scan(P)) == rows
    assert list(store.scan(P + 1)) == []


def test_a_scan_leaves_nothing_in_the_block_cache(opened: Open) -> None:
    store = opened()
    rows = [(b"%05d" % number, bytes(300)) for number in range(3_000)]
    store.write_rows(P, rows, 2_999)
    files = store._db_for_partition(P)
    files.flush()

    def cached() -> int:
        return int(files.property_value("rocksdb.block-cache-usage"))

    assert len(list(store.scan(P))) == len(rows)
    assert cached() < 10_000
    assert len(list(files.items())) > len(rows)
    assert cached() > 10_000, "or this test cannot fail"


def test_offsets_count_in_their_own_epoch(opened: Open) -> None:
    store = opened(epoch=5)
    assert store.held_offset(P) is None
    store.write_rows(P, [(b"a", b"1")], 41)
    assert store.held_offset(P) == 41
    assert store.held_offset(P + 1) is None
    store.epoch = 6
    assert store.held_offset(P) is None, "offsets begin again in a new epoch"
    assert store.get_row(P, b"a") == b"1"
    store.write_rows(P, [], 0)
    assert store.held_offset(P) == 0


def test_the_offset_stays_where_somebody_else_wrote_in_between(opened: Open) -> None:
    store = opened()
    store.write_rows(P, [(b"a", b"1")], 10)
    store.write_rows(P, [(b"a", b"2")], None)
    assert store.held_offset(P) == 10
    assert store.get_row(P, b"a") == b"2"


def test_faust_cannot_move_the_offset_without_rows(opened: Open) -> None:
    store = opened()
    store.write_rows(P, [(b"a", b"1")], 10)
    store.set_persisted_offset(CHANGELOG_TP, 99)
    assert store.held_offset(P) == 10


def test_it_survives_being_opened_again(opened: Open) -> None:
    store = opened()
    store.write_rows(P, [(b"a", b"1"), (b"gone", b"2")], 3)
    store.write_rows(P, [(b"gone", None)], 4)
    del store
    again = opened()
    assert list(again.scan(P)) == [(b"a", b"1")]
    assert again.held_offset(P) == 4


def row(offset: int, body: bytes = b"body", epoch: int = 5) -> bytes:
    return with_version(deleted(0, 0) + body, epoch, offset)


def recover(store: ContextStore, *records: tuple[bytes, bytes | None, int]) -> set[bytes]:
    restoring = Restoring(store, P)
    for key, row, offset in records:
        restoring.apply([key], [row], offset + 1)
    restoring.write(records[-1][2])
    return restoring.stale_keys


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_recovery_applies_changelog_records(
    opened: Open, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "WRITE_ROWS", at_once)
    store = opened()
    store.write_rows(P, [(b"old", deleted(5, 1))], 6)
    records = [(b"a", row(1), 7), (b"a", row(2), 8), (b"old", None, 9), (b"b", row(3), 12)]
    assert recover(store, *records) == set()
    assert dict(store.scan(P)) == {b"a": row(2), b"b": row(3)}
    assert store.held_offset(P) == 12


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_recovery_keeps_the_row_of_the_higher_offset(
    opened: Open, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "WRITE_ROWS", at_once)
    store = opened()
    store.write_rows(P, [(b"local", row(20))], 6)
    overtaken = recover(
        store,
        (b"local", row(19), 7),
        (b"a", row(30), 8),
        (b"a", row(10), 9),
        (b"epoch", row(1, epoch=6), 10),
        (b"epoch", row(90), 11),
        (b"alive", row(4), 12),
        (b"alive", None, 13),
        (b"good again", row(4), 14),
        (b"good again", row(3), 15),
        (b"good again", row(4), 16),
    )
    assert dict(store.scan(P)) == {
        b"local": row(20), b"a": row(30), b"epoch": row(1, epoch=6), b"alive": row(4),
        b"good again": row(4),
    }  # fmt: skip
    assert overtaken == {b"local", b"a", b"epoch", b"alive"}
