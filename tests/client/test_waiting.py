"""emit() waits for no other disk and for no walk over a large directory. Faults, not clocks."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headstart import Emitter, NotDelivered, SpoolSettings
from headstart.shipping.shipper import MAX_AGE_S
from headstart.spool.disk_usage import SPOOLS_PER_STEP, DiskUsage
from tests.client.on_disk import SpoolReader, event, numbers, open_backlog, open_spool, read_all
from tests.patience import PATIENCE_S, until

FIELDS = {"event_type": "task_complete", "workflow_type": "w", "workflow_id": "w"}


def test_a_disk_that_hangs_holds_up_the_syncing_thread_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, waiting, fsync = threading.Event(), Counter[str](), os.fsync

    def hangs(descriptor: int) -> None:
        waiting[threading.current_thread().name] += 1
        back.wait(PATIENCE_S)
        fsync(descriptor)

    monkeypatch.setattr("headstart.spool.writer.os.fsync", hangs)
    settings = SpoolSettings(tmp_path, fsync="interval", fsync_s=0.001, segment_bytes=2_000)
    emitter = Emitter("127.0.0.1:1", spool=settings, shipper="none")
    emitter.emit(FIELDS)
    until(lambda: bool(waiting))
    for n in range(200):  # many a segment is left
        emitter.emit(FIELDS, n=n)
    assert set(waiting) == {"headstart-fsync"}
    spool = tmp_path / emitter.spool_id
    assert len(list(spool.glob("*.log"))) > 10
    back.set()
    with pytest.raises(NotDelivered):
        emitter.close(0.0)
    assert not {path for path in map(os.readlink, links()) if path.startswith(str(spool))}
    backlog = SpoolReader(spool, MAX_AGE_S, lambda: 0)
    assert len(read_all(backlog)) == 201
    backlog.close()


def links() -> list[str]:
    """The names of what this process has open, that are still there when they are looked at."""
    return [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd") if _is_open(int(n))]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """A directory with the spools of many others, 4,500 bytes in all."""
    for number in range(450):
        folder = tmp_path / f"other-{number}"
        folder.mkdir()
        (folder / "0.log").write_bytes(b"x" * 10)
    return tmp_path


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    looks: Counter[str] = Counter()
    scandir = os.scandir

    def looking(path: Any) -> Any:
        looks["spools"] += 1
        return scandir(path)

    monkeypatch.setattr("headstart.spool.disk_usage.os.scandir", looking)
    return looks


def test_an_append_looks_at_a_bounded_part_of_a_large_directory(
    crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool(crowd, segment_bytes=40_000)
    assert spool.append(b"k", event(0))
    looks, most, began = counted(monkeypatch), 0, 0
    for number in range(1, 6_000):
        before = looks["spools"]
        assert spool.append(b"k", event(number))
        most = max(most, looks["spools"] - before)
        began += not spool._ahead_from >= 0 and spool._size < 100
    assert began >= 4  # segments
    assert most <= 2  # the directory itself, and one of its spools
    assert looks["spools"] >= 4 * 450
    spool.close()


def test_the_first_event_waits_for_no_walk_either(
    crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted(monkeypatch)
    spool = open_spool(crowd, limit_bytes=4_000, segment_bytes=1_000)
    assert spool.append(b"k", event(0))
    assert looks["spools"] <= SPOOLS_PER_STEP + 1
    while spool.append(b"k", event(spool.next)):
        pass
    assert spool._size < 2_000  # it exceeds the limit by a segment, and what it grows by meanwhile
    spool.close()


def test_where_a_segment_fills_faster_than_the_directory_is_known_it_goes_on(
    crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool(crowd, segment_bytes=1_000)
    backlog = open_backlog(spool)
    assert spool.append(b"k", event(0))
    looks = counted(monkeypatch)
    for number in range(1, 400):
        before = looks["spools"]
        assert spool.append(b"k", event(number))
        assert looks["spools"] - before <= SPOOLS_PER_STEP + 1
    assert numbers(read_all(backlog)) == [event(n) for n in range(400)]
    spool.close()
    backlog.close()


def test_a_full_directory_is_looked_at_in_parts_too_and_room_is_found(
    crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool(crowd, limit_bytes=8_000, segment_bytes=1_000)
    while spool.append(b"k", event(spool.next)):
        pass
    looks = counted(monkeypatch)
    for _ in range(20):
        before = looks["spools"]
        assert not spool.append(b"k", event(spool.next))
        assert looks["spools"] - before <= SPOOLS_PER_STEP + 1
    for number in range(300):
        (crowd / f"other-{number}" / "0.log").unlink()
    attempts = 0
    while not spool.append(b"k", event(spool.next)):
        attempts += 1
        assert attempts < 20
    spool.close()


def test_parts_add_up_to_the_whole(crowd: Path) -> None:
    (crowd / "quarantine").mkdir()
    (crowd / "quarantine" / "kept").write_bytes(b"x" * 1_000)
    usage = DiskUsage(crowd)
    for _ in range(2):
        parts = [usage.measure() for _ in range(5)]
        assert parts == [None] * 4 + [4_500]
    assert usage.measure(7) is None
    usage.close()
    assert [usage.measure(451)] == [4_500]
