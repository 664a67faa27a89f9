"""Open starts: which rows they leave."""

from __future__ import annotations

from processing.state.expiry_budget import ExpiryBudget
from processing.state.open_predictions import START_LIFE_MS, OpenPredictions
from processing.state.rows import OpenPredictionRow, decode_start, deleted, encode_start
from processing.state.tombstones import MARKER_RETENTION_S, START_MARKER_RETENTION_S, Tombstones

EPOCH = 3
START = OpenPredictionRow(1_000, 0.8, "search", "speculative", True, (None, None))


def test_a_start_that_its_own_record_closes_leaves_no_row() -> None:
    starts = OpenPredictions(EPOCH)
    starts.open(b"sa", START, 7)
    assert starts.close(b"sa", 7) == START
    assert starts.drain() == []
    assert not starts


def test_one_that_a_later_record_closes_leaves_a_marker_whatever_the_commits() -> None:
    for commits_between in (False, True):
        starts = OpenPredictions(EPOCH)
        starts.open(b"sa", START, 7)
        if commits_between:
            ((_, row),) = starts.drain()
            assert decode_start(row) == START
        starts.close(b"sa", 8)
        assert starts.drain() == [(b"sa", deleted(EPOCH, 8))]


def test_one_that_was_there_before_leaves_a_marker() -> None:
    restored = OpenPredictions(EPOCH)
    restored.restore(b"sa", encode_start(START, EPOCH, 5))
    assert restored.open(b"sa", START, 7)
    restored.close(b"sa", 7)
    assert restored.drain() == [(b"sa", deleted(EPOCH, 7))]


def test_one_that_is_opened_again_by_the_record_that_closed_it() -> None:
    starts = OpenPredictions(EPOCH)
    starts.open(b"sa", START, 7)
    starts.drain()
    starts.close(b"sa", 8)
    starts.open(b"sa", START, 8)
    assert starts.drain() == [(b"sa", encode_start(START, EPOCH, 8))]
    starts.close(b"sa", 9)
    assert starts.drain() == [(b"sa", deleted(EPOCH, 9))]


def test_a_start_without_an_end_expires_with_a_marker() -> None:
    starts = OpenPredictions(EPOCH)
    starts.open(b"sa", START, 7)
    assert starts.expire(START.timestamp + START_LIFE_MS, 8, ExpiryBudget().at(8)) == []
    assert starts.expire(START.timestamp + START_LIFE_MS + 1, 9, ExpiryBudget().at(9)) == [b"sa"]
    assert starts.drain() == [(b"sa", deleted(EPOCH, 9))]


def test_markers_of_starts_are_deleted_sooner() -> None:
    marker, row = deleted(EPOCH, 1), encode_start(START, EPOCH, 2)
    tombstones = Tombstones()
    tombstones.add([(b"sa", marker), (b"ca", marker), (b"sb", row)], 100.0)
    assert tombstones.due(100.0 + START_MARKER_RETENTION_S - 1) == []
    assert tombstones.due(100.0 + START_MARKER_RETENTION_S) == [(b"sa", marker)]
    assert tombstones.due(100.0 + MARKER_RETENTION_S) == [(b"ca", marker)]
    assert tombstones.due(100.0 + MARKER_RETENTION_S) == []


def test_one_that_its_own_record_closes_leaves_the_marker_of_an_earlier_one() -> None:
    for commits_between in (False, True):
        starts, table = OpenPredictions(EPOCH), {}
        starts.open(b"sa", START, 7)
        starts.close(b"sa", 8)
        if commits_between:
            table |= dict(starts.drain())
        starts.open(b"sa", START, 9)
        starts.close(b"sa", 9)
        assert table | dict(starts.drain()) == {b"sa": deleted(EPOCH, 8)}
