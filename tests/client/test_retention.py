"""What is acknowledged stays in the spool until it is taken in, where the broker's log can be lost.

The files are real; the broker's answers are the test's.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.emitting.disk_buffer import DiskBuffer
from headstart.shipping.retention import Retention
from headstart.shipping.volatile_broker import (
    DECISIONS,
    EPOCHS,
    EVENTS,
    GROUPS,
    GROUPS_OF_DECISIONS,
)
from headstart.spool.layout import segments
from headstart.spool.reader import SpoolReader
from headstart.spool.settings import SpoolSettings
from tests.client.on_disk import (
    HOUR_MS,
    TARGET,
    Clock,
    crash,
    event,
    fill,
    numbers,
    open_backlog,
    open_spool,
    read_all,
)
from topics import catalogue


def acknowledge(backlog: SpoolReader) -> list[bytes]:
    """Read what there is, and have the broker acknowledge it."""
    items = read_all(backlog)
    for item in items:
        item.chunk.delivered()
    return numbers(items)


def test_the_client_s_names_are_those_of_the_catalogue() -> None:
    assert catalogue.EPOCHS.name == EPOCHS
    assert catalogue.EVENTS.name == EVENTS
    assert set(GROUPS) == {catalogue.EPISODES_GROUP, catalogue.THRESHOLDS_GROUP}
    assert catalogue.DECISIONS.name == DECISIONS
    assert set(GROUPS_OF_DECISIONS) == {catalogue.PREDICTIONS_GROUP}


def test_without_retention_acknowledged_events_are_deleted_at_once(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, segment_bytes=200)
    fill(spool, 20)
    spool.close()
    backlog = open_backlog(spool)
    assert acknowledge(backlog) == [event(n) for n in range(20)]
    read_all(backlog)
    assert backlog.removable
    assert not backlog.retained
    assert not segments(spool.folder)
    backlog.close()


def test_acknowledged_events_are_retained_and_read_again_in_order(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, segment_bytes=200)
    fill(spool, 20)
    backlog = open_backlog(spool)
    backlog.retain(keep=True)
    acknowledge(backlog)
    assert spool.progress().settled == 20  # flush() waits for no worker
    backlog.mark_consumed(8)
    assert segments(spool.folder)[0][0] <= 8 < segments(spool.folder)[1][0]
    fill(spool, 5)
    in_flight = read_all(backlog)  # lost with the broker
    assert numbers(in_flight) == [event(n) for n in range(20, 25)]
    assert backlog.rewind() == 12
    assert acknowledge(backlog) == [event(n) for n in range(8, 25)]
    assert spool.progress().settled == 25
    spool.close()
    read_all(backlog)
    assert backlog.drained
    assert not backlog.removable
    backlog.mark_consumed(25)
    assert backlog.removable
    assert not segments(spool.folder)
    backlog.close()


def test_the_next_shipper_starts_at_unconsumed_events(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    fill(spool, 10)
    first = open_backlog(spool)
    first.retain(keep=True)
    acknowledge(first)
    first.mark_consumed(4)
    first.close()
    second = open_backlog(spool)
    assert acknowledge(second) == [event(n) for n in range(4, 10)]
    second.retain(keep=False)  # events go to another broker, by `ship --kafka`
    fill(spool, 1)
    assert acknowledge(second) == [event(10)]
    second.close()
    third = open_backlog(spool)
    assert read_all(third) == []
    third.close()
    spool.close()


def test_events_read_again_are_counted_once_and_quarantined_if_too_old(tmp_path: Path) -> None:
    clock = Clock()
    spool = open_spool(tmp_path, now_ms=clock, segment_bytes=200)
    fill(spool, 30)
    segments(spool.folder)[1][1].unlink()  # dropped at the limit
    backlog = open_backlog(spool)
    backlog.retain(keep=True)
    acknowledge(backlog)
    lost = backlog.progress.lost
    assert lost > 0
    backlog.rewind()
    acknowledge(backlog)
    assert backlog.progress.lost == lost
    there = {path.name for _first, path in segments(spool.folder)}
    clock.ms += 10 * 24 * HOUR_MS
    for _ in range(2):  # the log is lost, and lost again
        backlog.rewind()
        assert acknowledge(backlog) == []
        assert backlog.progress.lost == 30
    kept = {path.name for path in (tmp_path / "quarantine").iterdir()}
    assert kept == {f"{spool.id}-{name}" for name in there}
    assert not backlog.retained
    backlog.close()
    after = open_backlog(spool)  # of the next shipper
    assert acknowledge(after) == []
    assert after.progress.lost == 30
    after.close()
    spool.close()


def test_too_old_events_after_retained_ones_are_counted_once(tmp_path: Path) -> None:
    clock = Clock()
    spool = open_spool(tmp_path, now_ms=clock)
    fill(spool, 10)
    backlog = open_backlog(spool)
    backlog.retain(keep=True)
    acknowledge(backlog)
    fill(spool, 5)
    clock.ms += 4 * 24 * HOUR_MS
    assert acknowledge(backlog) == []
    assert (backlog.progress.lost, backlog.retained) == (5, 15)  # the log has the first ten
    backlog.rewind()
    assert acknowledge(backlog) == []
    assert (backlog.progress.lost, backlog.retained) == (15, 0)
    backlog.close()
    spool.close()


def test_events_that_expire_in_the_queue_when_sent_again_are_counted(tmp_path: Path) -> None:
    clock = Clock()
    spool = open_spool(tmp_path, now_ms=clock)
    fill(spool, 4)
    backlog = open_backlog(spool)
    backlog.retain(keep=True)
    acknowledge(backlog)
    backlog.rewind()
    items = read_all(backlog)
    clock.ms += 4 * 24 * HOUR_MS
    for item in items:
        assert item.chunk.expired()
        item.chunk.refused(item.event, "too old")
    assert backlog.progress.lost == 4
    assert len(list((tmp_path / "quarantine").iterdir())) == 1
    backlog.close()
    spool.close()


def test_an_emitter_deletes_nothing_of_a_lost_log_uncounted(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, segment_bytes=200)
    fill(spool, 50)
    backlog = open_backlog(spool)
    backlog.retain(keep=True)
    acknowledge(backlog)
    assert spool.drop_acknowledged()  # the log is there
    (first, _), (second, _), (third, _), *_ = segments(spool.folder)
    backlog.rewind()
    assert not spool.drop_acknowledged()
    assert spool.drop_oldest() == (True, second - first)  # it is open, and still arrives
    assert spool.drop_oldest() == (True, third - second)
    left = acknowledge(backlog)
    assert len(left) == 50 - first - (third - second)
    assert backlog.progress.lost == 50 - len(left)
    assert spool.drop_acknowledged()
    backlog.close()
    after = open_backlog(spool)  # of the next shipper, which does not know what log there is
    assert not spool.drop_acknowledged()
    after.close()
    spool.close()


def test_a_spool_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, segment_bytes=200)
    fill(spool, 20)
    backlog = open_backlog(spool)
    backlog.retain(keep=True)
    acknowledge(backlog)
    backlog.close()
    os.truncate(spool.folder / "acked", 76)  # without the third mark
    assert spool.drop_acknowledged()
    after = open_backlog(spool)
    left = acknowledge(after)
    assert left[-1] == event(19)
    assert after.progress.lost == 0  # the log may still have what is gone
    after.close()
    spool.close()


@given(st.lists(st.sampled_from(["emit", "acknowledge", "take in", "lose", "restart"])))
def test_nothing_is_skipped_and_nothing_newer_comes_first(steps: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        spool = open_spool(Path(folder), segment_bytes=300)
        backlog = open_backlog(spool)
        backlog.retain(keep=True)
        log: list[bytes] = []  # of the broker that is there now
        taken: list[bytes] = []
        for step in [*steps, "lose", "acknowledge", "take in"]:
            if step == "emit":
                fill(spool, 3)
            elif step == "acknowledge":
                log += acknowledge(backlog)
            elif step == "take in":
                taken += [each for each in dict.fromkeys(log) if each not in taken]
                backlog.mark_consumed(backlog.marks.acknowledged)
            elif step == "lose":
                log.clear()
                backlog.rewind()
            else:
                backlog.close()
                backlog = open_backlog(spool)
        assert taken == [event(n) for n in range(spool.next)]
        backlog.close()
        crash(spool)


def test_an_emitter_at_its_limit_deletes_retained_events_first(tmp_path: Path) -> None:
    settings = SpoolSettings(tmp_path, limit_bytes=8_000, segment_bytes=1_000)
    outbox = DiskBuffer(TARGET, settings, "none")
    outbox.put(b"k", b'{"a":1}', Clock().ms)
    assert outbox._spool is not None
    backlog = open_backlog(outbox._spool)
    backlog.retain(keep=True)
    for _ in range(300):  # 30 kB, of which 8 kB may wait
        outbox.put(b"k", b'{"a":1}', Clock().ms)
        acknowledge(backlog)
    assert outbox.dropped == backlog.progress.lost == 0
    assert backlog.progress.settled == 301
    backlog.rewind()
    left = acknowledge(backlog)
    assert left
    assert backlog.progress.lost == 301 - len(left)  # acknowledged, deleted, and on no broker
    backlog.close()
    outbox.close(0)


class Sender:
    """What the broker has, and what its consumers have committed."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.offsets: dict[str, dict[int, int]] = {group: {} for group in GROUPS}

    async def committed(self) -> dict[str, dict[int, int]] | None:
        return self.offsets


def asked(retention: Retention) -> None:
    async def run() -> None:
        retention.poll()
        if retention._task is not None:
            await retention._task

    asyncio.run(run())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("headstart.shipping.retention.QUERY_S", 0.0)
    spool = open_spool(tmp_path, segment_bytes=200)
    backlog = open_backlog(spool)
    retention = Retention("b", lambda: [backlog], lambda _backlog: None)
    retention.sender = Sender()  # type: ignore[assignment]
    retention.note_connection(volatile=True, lost=False)
    yield spool, backlog, retention
    backlog.close()
    spool.close()


def test_it_is_taken_in_once_both_groups_have_passed_it(kept: Any) -> None:
    spool, backlog, retention = kept
    fill(spool, 10)
    acknowledge(backlog)
    retention.sender.ends = {0: 3, 2: 7}
    asked(retention)
    first, second = GROUPS
    retention.sender.offsets[first] = {0: 3, 2: 9}
    asked(retention)
    retention.sender.offsets[second] = {0: 3, 2: 6}
    fill(spool, 5)
    acknowledge(backlog)  # behind the mark, which stays where it was drawn
    retention.sender.ends = {0: 8, 2: 7}
    asked(retention)
    assert backlog.retained == 15
    retention.sender.offsets[second] = {0: 3, 2: 7}
    asked(retention)
    assert backlog.retained == 5
    asked(retention)
    assert backlog.retained == 5


def test_after_a_lost_log_old_commits_consume_nothing(kept: Any) -> None:
    spool, backlog, retention = kept
    fill(spool, 10)
    acknowledge(backlog)
    retention.sender.ends = {0: 3}
    asked(retention)
    retention.note_connection(volatile=True, lost=True)
    retention.sender.ends = {}
    retention.sender.offsets = {group: {0: 9} for group in GROUPS}
    asked(retention)  # nothing is acknowledged, so nothing is kept
    assert acknowledge(backlog) == [event(n) for n in range(10)]
    retention.sender.ends = {0: 12}
    asked(retention)
    assert backlog.retained == 10


def test_unconsumed_events_are_retained_up_to_a_limit(
    kept: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool, backlog, retention = kept
    fill(spool, 100)
    acknowledge(backlog)
    retention.sender.ends = {0: 3}
    monkeypatch.setattr("headstart.shipping.retention.RETAINED_BYTES", 500)
    asked(retention)
    assert backlog.retained_bytes <= 500
    assert 0 < backlog.retained < 30
    assert "no longer retained" in caplog.text


def test_only_whole_acknowledged_segments_are_given_up(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, backlog, retention = kept
    fill(spool, 3)
    acknowledge(backlog)
    fill(spool, 97)
    read_all(backlog)  # and none of it acknowledged
    monkeypatch.setattr("headstart.shipping.retention.RETAINED_BYTES", 50)
    before = segments(spool.folder)
    assert before[1][0] > 3  # the first segment is acknowledged in part
    assert backlog.retained_bytes == 0
    retention._limit([backlog])
    assert backlog.release_oldest() == 0
    assert (backlog.retained, segments(spool.folder)) == (3, before)


def test_a_mark_that_the_disk_did_not_take_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("headstart.shipping.retention.QUERY_S", 0.0)
    spool = open_spool(tmp_path)
    backlog = open_backlog(spool)
    retention = Retention("b", lambda: [backlog], lambda _backlog: None)
    retention.sender = Sender()  # type: ignore[assignment]
    with monkeypatch.context() as patch:
        patch.setattr("headstart.spool.acknowledged.write_marks", full)
        retention.note_connection(volatile=True, lost=False)
        fill(spool, 5)
        acknowledge(backlog)
        for _ in range(3):
            asked(retention)
    assert backlog.retained == 0
    assert caplog.text.count("cannot retain") == 1
    asked(retention)
    fill(spool, 5)
    acknowledge(backlog)
    assert backlog.retained == 5
    backlog.close()
    spool.close()
