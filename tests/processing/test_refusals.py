"""The limits stop at the same record wherever a step ends, and look at records, not at events."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headstart.events.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter, dead_letter
from processing.records.decode import Rejection
from processing.records.dlq_limits import (
    LEAST_SEEN,
    DlqLimits,
    RefusalLimitExceeded,
    RefusalState,
    Slice,
    examine,
)
from topics.control.messages import CONTROL_HEADER

OFF = DlqLimits(ratio=0, run=0)
FRESH = RefusalState(0)


def batch_of(frames: Sequence[int], first: int = 0, step: int = 1, partition: int = 0) -> Any:
    """Records that hold so many events each; a hole after each where `step` is 2."""
    count = len(frames)
    offsets = [first + step * place for place in range(count)]
    values = [orjson.dumps([{}] * held) for held in frames]
    end = offsets[-1] + step if offsets else first
    times: list[int] = [0] * count
    return RecordBatch("t", partition, first, end, offsets, times, [None] * count, values)


def letters_of(batch: RecordBatch, refused: Sequence[int]) -> list[DeadLetter]:
    """So many refused events of each record."""
    return [
        dead_letter(batch, position, Rejection(b"{}", "bad", place), "g")
        for position, count in enumerate(refused)
        for place in range(count)
    ]


def stops_at(
    limits: DlqLimits, records: Sequence[tuple[int, int]], cuts: Sequence[int], step: int
) -> int | None:
    """The place of the record that exceeds a limit, the records being handled slice by slice."""
    batch = batch_of([held for held, _bad in records], step=step)
    letters = letters_of(batch, [bad for _held, bad in records])
    state = FRESH
    for begin, end in pairwise([0, *cuts, len(records)]):
        try:
            state = examine(state, limits, Slice(batch, begin, end), letters)
        except RefusalLimitExceeded:
            # A step that stops is examined as a whole; which record it was, one by one.
            for place in range(begin, end):
                try:
                    state = examine(state, limits, Slice(batch, place, place + 1), letters)
                except RefusalLimitExceeded:
                    return place
            raise AssertionError("one by one nothing is exceeded") from None
    return None


def oracle(limits: DlqLimits, records: Sequence[tuple[int, int]]) -> int | None:
    """The definition: a run of whole records, or the share of the last window's."""
    run = 0
    for place, (held, bad) in enumerate(records):
        run = run + 1 if bad == held else 0
        if not bad:
            continue
        if limits.run and run >= limits.run:
            return place
        window = records[max(0, place + 1 - limits.window) : place + 1]
        share = sum(1_000_000 * refused // of for of, refused in window)
        enough = len(window) >= min(LEAST_SEEN, limits.window)
        if limits.ratio and enough and share > limits.ratio * len(window) * 1_000_000:
            return place
    return None


@st.composite
def record(draw: st.DrawFn) -> tuple[int, int]:
    held = draw(st.sampled_from([1, 1, 1, 2, 5]))
    return held, draw(st.sampled_from([0, 0, held, draw(st.integers(0, held))]))


@given(
    records=st.lists(record(), max_size=60),
    limits=st.builds(
        DlqLimits, st.sampled_from([0, 0.3, 0.5, 0.9, 1]), st.integers(1, 30), st.integers(0, 6)
    ),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    step=st.sampled_from([1, 2]),
)
def test_it_stops_by_the_definition_however_steps_are_cut(
    records: list[tuple[int, int]], limits: DlqLimits, cuts: list[int], step: int
) -> None:
    inside = sorted(cut for cut in cuts if cut <= len(records))
    expected = oracle(limits, records)
    event(f"stops: {expected is not None}")
    assert stops_at(limits, records, inside, step) == expected
    assert stops_at(OFF, records, inside, step) is None


def test_a_frame_of_bad_events_is_one_record() -> None:
    limits = DlqLimits(ratio=0, run=2)
    assert stops_at(limits, [(1000, 1000)], [], 1) is None
    assert stops_at(limits, [(1000, 1000), (1000, 1000)], [], 1) == 1
    assert stops_at(limits, [(1000, 1000), (1000, 999), (1000, 1000)], [], 1) is None


def test_the_ratio_is_ignored_before_enough_is_seen() -> None:
    limits = DlqLimits(run=0)
    assert stops_at(limits, [(1, 1)] * (LEAST_SEEN - 1), [], 1) is None
    assert stops_at(limits, [(1, 1)] * LEAST_SEEN, [], 1) == LEAST_SEEN - 1
    assert stops_at(limits, [(1, 0), (1, 1)] * 2_000, [], 1) is None, "half is allowed"
    assert stops_at(limits, [(1, 0)] * 2_000 + [(1, 1)] * 2_000, [], 1) == 2_500


def test_a_run_is_ended_by_one_record_that_is_taken() -> None:
    limits = DlqLimits(ratio=0, run=3)
    assert stops_at(limits, [(1, 1), (1, 1), (1, 0)] * 50, [], 1) is None
    assert stops_at(limits, [(1, 1)] * 3, [1, 2], 1) == 2


def test_bytes_without_frame_and_json_count_whole() -> None:
    batch = batch_of([1, 1, 1])
    batch.values[:] = [b"[nope", None, b""]
    with pytest.raises(RefusalLimitExceeded):
        examine(FRESH, DlqLimits(run=3), Slice(batch, 0, 3), letters_of(batch, [1, 1, 1]))


@pytest.mark.parametrize("size", [MAX_FRAME_EVENTS + 1, MAX_FRAME_BYTES])
def test_a_frame_that_is_too_large_counts_whole(size: int) -> None:
    """It is refused whole; unpacked, megabytes of it may hold millions."""
    batch = batch_of([1, 1])
    batch.values[:] = [b"[%s1]" % (b"1," * (size - 1))] * 2
    with pytest.raises(RefusalLimitExceeded):
        examine(FRESH, DlqLimits(run=2), Slice(batch, 0, 2), letters_of(batch, [1, 1]))


def test_partitions_are_judged_apart() -> None:
    mine, other = batch_of([1, 1]), batch_of([1, 1], partition=1)
    letters = letters_of(other, [1, 1])
    assert examine(FRESH, DlqLimits(run=1), Slice(mine, 0, 2), letters).recent == ()
    with pytest.raises(RefusalLimitExceeded, match="partition 1 of t"):
        examine(FRESH, DlqLimits(run=1), Slice(other, 0, 2), letters)


def test_the_message_names_limit_offsets_and_remedy() -> None:
    batch = batch_of([1] * 5, first=40)
    with pytest.raises(RefusalLimitExceeded) as stopped:
        examine(FRESH, DlqLimits(run=4), Slice(batch, 0, 5), letters_of(batch, [0, 1, 1, 1, 1]))
    message = str(stopped.value)
    assert "4 records in a row of partition 0 of t are refused" in message
    assert "offsets 41, 42, 43; the last because 'bad'" in message
    assert "headstart dead-letters list" in message
    assert "HEADSTART_REFUSED_RUN" in message


def test_the_state_survives_the_file() -> None:
    batch = batch_of([2, 1])
    state = examine(FRESH, DlqLimits(), Slice(batch, 0, 2), letters_of(batch, [1, 1]))
    assert (state.reached, state.seen, state.run, len(state.recent)) == (2, 2, 1, 2)
    assert msgspec.json.decode(msgspec.json.encode(state), type=RefusalState) == state


def test_a_slice_reaches_past_the_holes_at_its_end() -> None:
    batch = batch_of([1, 1, 1], first=10, step=2)
    assert Slice(batch, 0, 3).reached == 16
    assert Slice(batch, 0, 2).reached == 14


def test_control_records_do_not_count() -> None:
    """They are no producer's: a clock record neither ends a run nor adds to what was seen."""
    batch = batch_of([1] * 5)
    batch.headers[2] = ((CONTROL_HEADER, b"1"),)
    limits = DlqLimits(ratio=0, run=4)
    state = examine(FRESH, limits, Slice(batch, 0, 4), letters_of(batch, [1, 1, 1, 1]))
    assert (state.seen, state.run) == (3, 3)
    with pytest.raises(RefusalLimitExceeded, match="4 records in a row"):
        examine(state, limits, Slice(batch, 4, 5), letters_of(batch, [0, 0, 0, 0, 1]))
