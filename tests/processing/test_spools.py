"""Events sent twice are counted once, however they are framed the second time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processing import partition_state as state_module
from processing.state import expiry_budget as endings_module
from processing.state.deduplication import SPOOL_LIFE_MS
from processing.state.rows import decode_spool, is_deleted, spool_key, with_version
from processing.task import RowAhead
from tests.processing.building import (
    EPOCH,
    NOW,
    Table,
    context,
    counts,
    event,
    fetch,
    judged,
    live,
    make,
    run,
    start,
)

SPOOL = "0199c82c-c000-7abc-8def-0123456789ab"
KEY = spool_key("acme", "refund", SPOOL)


def sent(position: int, spool: str = SPOOL, **fields: Any) -> dict[str, Any]:
    return judged(origin=[spool, position], **fields)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    again=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 5)), max_size=6),
    data=st.data(),
)
def test_every_event_counts_once_however_often_and_in_whatever_frames_it_is_sent(
    sizes: list[int], again: list[tuple[int, int]], data: st.DataObject
) -> None:
    """What may come: the log once, and any older stretch of it again, in other frames."""
    total, log, frames = sum(sizes), [sent(n) for n in range(sum(sizes))], []
    place = 0
    for size in sizes:
        frames.append(log[place : place + size])
        place += size
        for back, length in data.draw(st.lists(st.sampled_from(again or [(0, 1)]), max_size=2)):
            begin = max(0, place - back)
            frames.append(log[begin : min(place, begin + length)])
    table, _commit = run(*[frame for frame in frames if frame])
    assert counts(table).outcomes == context(table).outcomes == total
    assert counts(table).duplicates == sum(map(len, frames)) - total


def test_positions_are_kept_over_a_restart() -> None:
    table, _commit = run(sent(0), sent(1))
    run(sent(1), sent(2), table=table)
    assert (counts(table).outcomes, counts(table).duplicates) == (3, 1)
    assert decode_spool(table[KEY]).position == 2


def test_spools_and_keys_are_distinguished() -> None:
    events = [sent(4), sent(4, "another"), sent(4, workflow_type="other"), sent(4, tenant="b")]
    table, _commit = run(*events)
    assert (counts(table).outcomes, counts(table).duplicates) == (4, 0)


def test_events_without_an_origin_count_each_time() -> None:
    event_of_others = judged()
    table, _commit = run(event_of_others, event_of_others)
    assert counts(table).outcomes == 2


def test_a_start_sent_twice_is_opened_once() -> None:
    begun = start(origin=[SPOOL, 0])
    done = event(task_id="t1", tool_id="search", origin=[SPOOL, 1])
    table, _commit = run(begun, done, [begun, done])
    assert (counts(table).outcomes, counts(table).unresolved, counts(table).unmatched) == (1, 0, 0)


@pytest.mark.parametrize(("waited", "kept"), [(SPOOL_LIFE_MS, True), (SPOOL_LIFE_MS + 1, False)])
def test_a_position_expires_by_event_time(waited: int, kept: bool) -> None:
    begun = NOW - SPOOL_LIFE_MS
    table, _commit = run(sent(7, timestamp=begun))
    run(event("hil_decision", timestamp=begun + waited), table=table)
    assert is_deleted(table[KEY]) is not kept
    run(sent(7, timestamp=begun), table=table)
    assert counts(table).duplicates == kept


def test_a_position_lives_on_while_its_spool_does() -> None:
    begun = NOW - SPOOL_LIFE_MS
    table, _commit = run(sent(0, timestamp=begun), sent(1, timestamp=begun + 10))
    run(event("hil_decision", timestamp=begun + SPOOL_LIFE_MS + 5), table=table)
    assert KEY in live(table)
    run(event("hil_decision", timestamp=begun + SPOOL_LIFE_MS + 11), table=table)
    assert KEY not in live(table)


@pytest.mark.parametrize("restored", [False, True])
def test_the_longest_idle_expire_first(monkeypatch: pytest.MonkeyPatch, restored: bool) -> None:
    """Where few can go at once; whether a position is younger than it was is looked at late."""
    monkeypatch.setattr(endings_module, "ENDING_BYTES", 1)
    begin, table = NOW - 2 * SPOOL_LIFE_MS, Table()
    received = [("a", 0, begin), ("b", 0, begin + 5), ("a", 1, begin + 10)]
    core = make(table)
    core.apply(fetch(*(sent(place, spool, timestamp=at) for spool, place, at in received)))
    table.update(core.commit().rows)
    if restored:
        core = make(table)
    core.apply(fetch(sent(0, "c"), offsets=[1 + core.applied_offset]))
    gone = [key for key, row in core.commit().rows if key[:1] == b"o" and is_deleted(row)]
    assert gone == [spool_key("acme", "refund", "b")]


def test_a_full_cache_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "CACHED", 3)
    table: Table = {}
    for _round in range(2):
        for number in range(10):
            run(sent(0, f"spool-{number}"), table=table)
    assert (counts(table).outcomes, counts(table).duplicates) == (10, 10)


@pytest.mark.parametrize("offset", [2, 9])
def test_a_row_ahead_of_the_watermark_is_an_alarm(offset: int) -> None:
    table, _commit = run(sent(0), sent(1))
    table[KEY] = with_version(table[KEY], EPOCH, offset)
    with pytest.raises(RowAhead, match="lost part of a commit"):
        make(table)


def test_a_row_of_an_earlier_epoch_is_not_ahead() -> None:
    table, _commit = run(sent(0), sent(1))
    table[KEY] = with_version(table[KEY], EPOCH - 1, 99)
    assert make(table).applied_offset == 1


@pytest.mark.parametrize(
    "origin", [[], ["s"], ["s", 1, 2], [1, 1], ["s", -1], ["s", 1.5], ["", 1], ["s" * 65, 1], "s"]
)
def test_an_invalid_origin_is_refused(origin: Sequence[Any]) -> None:
    table, commit = run(judged(origin=origin))
    assert len(commit.dead_letters) == 1
    assert counts(table).outcomes == 0
