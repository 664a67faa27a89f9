"""The spool on a real disk: what was written and not acknowledged is read back, whatever happens.

The reader is the shipper's own; only the broker is absent.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.spool.layout import SpoolUnavailable, segments
from headstart.spool.segment_format import HEADER_BYTES
from tests.client.on_disk import (
    crash,
    event,
    fill,
    numbers,
    open_backlog,
    open_spool,
    read_all,
)


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(0, 7), max_size=6),
    segment=st.integers(60, 400),
    acked=st.data(),
)
def test_whatever_the_cut_what_was_not_acknowledged_is_read_back(
    counts: list[int], segment: int, acked: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        spool = open_spool(Path(folder), segment_bytes=segment)
        sizes = []
        for count in counts:
            fill(spool, count)
            sizes.append(spool.next)
        crash(spool)
        total, there = spool.next, segments(spool.folder)
        # The last write was cut short anywhere: emit() had not returned.
        if there:
            first, last = there[-1]
            size = last.stat().st_size
            record = (size - HEADER_BYTES) // max(1, total - first)
            os.truncate(last, size - acked.draw(st.integers(0, max(0, record - 1))))
            if last.stat().st_size != size:
                total -= 1
        # One shipper acknowledges some, in any order, and is killed; the next reads the rest.
        backlog = open_backlog(spool)
        items = read_all(backlog)
        assert numbers(items) == [event(n) for n in range(total)]
        through = acked.draw(st.sets(st.integers(0, max(0, total - 1)), max_size=total))
        for number in sorted(through):
            items[number].chunk.delivered()
        settled = backlog.progress.settled
        assert set(range(settled)) <= through
        backlog.close()
        successor = open_backlog(spool)
        rest = read_all(successor)
        assert numbers(rest) == [event(n) for n in range(settled, total)]
        for item in rest:
            item.chunk.delivered()
        read_all(successor)
        assert successor.removable
        assert (successor.progress.settled, successor.progress.lost) == (total, 0)
        successor.remove()
        assert os.listdir(folder) == []


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["emit", "read", "deliver", "successor"]), max_size=40))
def test_reader_and_writer_side_by_side(steps: list[str]) -> None:
    with TemporaryDirectory() as folder:
        spool = open_spool(Path(folder), segment_bytes=150)
        backlog, way = open_backlog(spool), []
        seen: list[bytes] = []
        for step in [*steps, "read", "deliver"]:
            if step == "emit":
                fill(spool, 1)
            elif step == "successor":
                backlog.close()
                backlog, way = open_backlog(spool), []
                seen = seen[: backlog.progress.settled]
            elif step == "deliver":
                for item in way:
                    item.chunk.delivered()
                way = []
            else:
                items = read_all(backlog)
                seen += numbers(items)
                way += items
        assert seen == [event(n) for n in range(spool.next)]
        assert spool.progress().settled == spool.next
        assert not backlog.removable  # its process lives
        assert len(segments(spool.folder)) <= 1  # what is acknowledged and full is gone
        spool.close()
        backlog.close()


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "spools")
    fill(spool, 1)
    for path in spool.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for folder in (spool.folder, tmp_path / "spools"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    spool.close()


def test_a_full_spool_takes_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, limit_bytes=1_000)
    while spool.append(b"k", event(spool.next)):
        pass
    taken = spool.next
    assert not spool.append(b"k", event(taken))
    assert spool.next == taken
    used = sum(path.stat().st_size for _, path in segments(spool.folder))
    assert 500 < used <= 1_000
    backlog = open_backlog(spool)
    for item in read_all(backlog):
        item.chunk.delivered()
    fill(spool, 3)
    assert numbers(read_all(backlog)) == [event(taken + n) for n in range(3)]
    spool.close()
    backlog.close()


def test_the_limit_is_the_directory_s(tmp_path: Path) -> None:
    first = open_spool(tmp_path, "a", limit_bytes=1_000)
    while first.append(b"k", event(0)):
        pass
    second = open_spool(tmp_path, "b", limit_bytes=1_000)
    assert not second.append(b"k", event(0))
    first.close()
    second.close()


def test_dropping_the_oldest_counts_every_event(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, limit_bytes=1_000)
    dropped = 0
    while spool.next < 100:
        if not spool.append(b"k", event(spool.next)):
            there, count = spool.drop_oldest()
            assert there
            dropped += count
    assert spool.dropped == dropped > 0
    backlog = open_backlog(spool)
    assert numbers(read_all(backlog)) == [event(n) for n in range(dropped, 100)]
    assert backlog.progress.lost == dropped
    spool.close()
    backlog.close()


def test_a_disk_that_is_full_in_mid_write_leaves_no_half_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool(tmp_path)
    fill(spool, 2)
    write, full = os.write, True

    def short(descriptor: int, data: bytes) -> int:
        if full and descriptor == spool._segment:
            return write(descriptor, data[: len(data) // 2])
        return write(descriptor, data)

    monkeypatch.setattr("headstart.spool.writer.os.write", short)
    assert not spool.append(b"k", event(2))
    assert not spool.append(b"k", event(2))
    full = False
    fill(spool, 2)
    backlog = open_backlog(spool)
    assert numbers(read_all(backlog)) == [event(n) for n in range(4)]
    assert backlog.progress.lost == 0
    spool.close()
    backlog.close()


def test_a_disk_without_room_for_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = open_spool(tmp_path, segment_bytes=100)
    fill(spool, 1)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headstart.spool.writer.os.write", full)
        for _ in range(3):
            assert not spool.append(b"k", event(1))
    fill(spool, 9)
    backlog = open_backlog(spool)
    assert numbers(read_all(backlog)) == [event(n) for n in range(10)]
    spool.close()
    backlog.close()


def test_a_directory_that_cannot_be_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolUnavailable, match="HEADSTART_SPOOL") as caught:
        open_spool(tmp_path / "file" / "spool")
    assert str(tmp_path / "file") in str(caught.value)


@pytest.mark.parametrize("fsync", ["never", "interval", "every"])
def test_every_way_of_syncing_writes_the_same(tmp_path: Path, fsync: str) -> None:
    spool = open_spool(tmp_path, fsync=fsync, segment_bytes=100)
    fill(spool, 10)
    spool.sync()
    backlog = open_backlog(spool)
    assert numbers(read_all(backlog)) == [event(n) for n in range(10)]
    spool.close()
    backlog.close()
