"""Damage, age and refusal: reading goes on, and nothing is given up in silence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headstart.shipping.shipper import MAX_AGE_S
from headstart.spool.layout import NEW, QUARANTINE, SPOOL_FILE, remove_unfinished, segments
from headstart.spool.reader import SpoolReader, UnreadableSpool
from headstart.spool.segment_format import HEADER_BYTES
from tests.client.on_disk import (
    HOUR_MS,
    Clock,
    crash,
    event,
    fill,
    numbers,
    open_backlog,
    open_spool,
    read_all,
)


def test_damage_in_the_middle_is_kept_counted_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = open_spool(tmp_path, segment_bytes=200)
    fill(spool, 20)
    crash(spool)
    victim = segments(spool.folder)[1][1]
    data = bytearray(victim.read_bytes())
    data[HEADER_BYTES + 22] ^= 1  # within its first record
    victim.write_bytes(data)
    broken = int(victim.stem)
    backlog = open_backlog(spool)
    items = read_all(backlog)
    assert numbers(items) == [event(n) for n in range(20) if n != broken]
    assert backlog.progress.lost == 1
    kept = tmp_path / QUARANTINE / f"{spool.id}-{victim.name}"
    assert kept.read_bytes() == bytes(data)
    assert str(victim) in caplog.text
    for item in items:
        item.chunk.delivered()
    read_all(backlog)
    assert backlog.removable
    backlog.close()


@pytest.mark.parametrize("left", [0, 10, HEADER_BYTES])
def test_a_truncated_segment_is_counted_and_the_next_flows_on(tmp_path: Path, left: int) -> None:
    spool = open_spool(tmp_path, segment_bytes=200)
    fill(spool, 20)
    crash(spool)
    (first, victim), (following, _) = segments(spool.folder)[1:3]
    os.truncate(victim, left)
    backlog = open_backlog(spool)
    items = read_all(backlog)
    assert numbers(items) == [event(n) for n in range(20) if not first <= n < following]
    assert backlog.progress.lost == following - first
    backlog.close()


def test_garbage_at_the_end_of_a_live_spool_does_not_stop_later_events(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    fill(spool, 3)
    backlog = open_backlog(spool)
    with open(segments(spool.folder)[0][1], "ab") as file:
        file.write(b"\0" * 100)
    fill(spool, 2)
    assert numbers(read_all(backlog)) == [event(n) for n in range(5)]
    assert (tmp_path / QUARANTINE).is_dir()
    spool.close()
    backlog.close()


def test_an_old_segment_is_quarantined_loudly_and_a_younger_one_shipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    spool = open_spool(tmp_path, now_ms=clock)
    fill(spool, 3)
    clock.ms += 2 * HOUR_MS
    fill(spool, 2)
    clock.ms += int(MAX_AGE_S * 1000) - HOUR_MS
    backlog = open_backlog(spool)
    assert numbers(read_all(backlog)) == [event(3), event(4)]
    assert backlog.progress.lost == 3
    assert "too old for the receiver" in caplog.text
    assert len(list((tmp_path / QUARANTINE).iterdir())) == 1
    spool.close()
    backlog.close()


def test_an_event_that_grows_old_on_its_way_is_not_sent(tmp_path: Path) -> None:
    clock = Clock()
    spool = open_spool(tmp_path, now_ms=clock)
    fill(spool, 1)
    backlog = open_backlog(spool)
    (item,) = read_all(backlog)
    assert not item.chunk.expired()
    clock.ms += int(MAX_AGE_S * 1000) + 1
    assert item.chunk.expired()
    item.chunk.refused(item.event, "too old")
    assert (backlog.progress.settled, backlog.progress.lost) == (1, 1)
    assert len(list((tmp_path / QUARANTINE).iterdir())) == 1
    spool.close()
    backlog.close()


def test_an_event_that_the_broker_refuses_is_kept(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    fill(spool, 2)
    backlog = open_backlog(spool)
    first, second = read_all(backlog)
    first.chunk.refused(first.event, "too large")
    second.chunk.delivered()
    assert (tmp_path / QUARANTINE / "s.jsonl").read_bytes() == event(0) + b"\n"
    assert (spool.progress().settled, spool.progress().lost) == (2, 1)
    spool.close()
    backlog.close()


def test_a_clock_set_back_changes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    spool = open_spool(tmp_path, now_ms=clock)
    fill(spool, 2)
    clock.ms -= 1000 * HOUR_MS
    fill(spool, 2)
    backlog = open_backlog(spool)
    assert numbers(read_all(backlog)) == [event(n) for n in range(4)]
    spool.close()
    backlog.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"kafka": "k"}'])
def test_other_directories_are_ignored(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    with pytest.raises(UnreadableSpool, match="other"):
        SpoolReader(folder, MAX_AGE_S, Clock())
    (folder / "spool.json").write_bytes(content)
    with pytest.raises(UnreadableSpool, match="other"):
        SpoolReader(folder, MAX_AGE_S, Clock())


def test_a_damaged_acknowledgement_repeats_and_loses_nothing(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    fill(spool, 3)
    backlog = open_backlog(spool)
    for item in read_all(backlog):
        item.chunk.delivered()
    backlog.close()
    with open(spool.folder / "acked", "r+b") as file:
        file.write(b"\xff")
    again = open_backlog(spool)
    assert numbers(read_all(again)) == [event(n) for n in range(3)]
    spool.close()
    again.close()


def test_a_file_of_another_name_outlives_its_spool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A renamed segment is not read, and its events must not be deleted."""
    spool = open_spool(tmp_path)
    fill(spool, 20)
    crash(spool)
    ((_, segment),) = segments(spool.folder)
    content = segment.read_bytes()
    segment.rename(segment.with_name("zzz.log"))
    backlog = open_backlog(spool)
    assert read_all(backlog) == []
    assert backlog.removable
    backlog.remove()
    assert not spool.folder.exists()
    assert (tmp_path / QUARANTINE / f"{spool.id}-zzz.log").read_bytes() == content
    assert "zzz.log has no name of a segment" in caplog.text


def test_an_unfinished_spool_with_a_file_of_another_name_stays(tmp_path: Path) -> None:
    folder = tmp_path / f"{NEW}0"
    folder.mkdir()
    for name in (SPOOL_FILE, "notes.txt"):
        (folder / name).touch()
    os.utime(folder, (0, 0))
    remove_unfinished(folder)
    assert len(list(folder.iterdir())) == 2
    (folder / "notes.txt").unlink()
    os.utime(folder, (0, 0))
    remove_unfinished(folder)
    assert not folder.exists()
