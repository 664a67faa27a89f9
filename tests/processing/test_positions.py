"""Which fetch comes next: nothing twice, nothing left out, whatever is delivered."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processing.records.batch import RecordBatch
from processing.records.offset_tracker import MOST_TRIES, FetchDecision, OffsetTracker, missing
from topics.kafka.limits import WholeBytes

AT = "a partition"


def batch(begin: int, end: int, offsets: Sequence[int] | None = None) -> RecordBatch:
    places = list(range(begin, end) if offsets is None else offsets)
    nothing: list[bytes | None] = [None] * len(places)
    return RecordBatch("t", 0, begin, end, places, places[:], nothing, nothing[:])


def positions(begin: int = 0, *, holes_are_real: bool = True) -> OffsetTracker[str]:
    return OffsetTracker({AT: begin}, holes_are_real=holes_are_real)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=60))
def test_each_record_is_taken_once_in_the_order_of_the_log(
    fetches: list[tuple[int, int]],
) -> None:
    at, taken = positions(), []
    for begin, count in fetches:
        fetched = batch(begin, begin + count)
        expected = at[AT]
        verdict = at.judge(AT, fetched)
        assert verdict is (
            FetchDecision.GAP if begin > expected else FetchDecision.OLD if begin + count <=
            expected else FetchDecision.TAKE
        )  # fmt: skip
        if verdict is FetchDecision.TAKE:
            taken += fetched.offsets
            assert len(fetched.values) == len(fetched.keys) == len(fetched.timestamps)
    assert taken == list(range(at[AT]))


def test_records_deleted_by_retention_are_counted_and_skipped() -> None:
    at = positions(5)
    assert at.judge(AT, batch(9, 12)) is FetchDecision.GAP
    assert at.skip_lost(AT, 3) == 0
    assert at[AT] == 5
    assert at.skip_lost(AT, 9) == 4
    assert at.judge(AT, batch(9, 12)) is FetchDecision.TAKE


def test_real_holes_are_taken_at_once() -> None:
    at = positions()
    assert at.judge(AT, batch(0, 10, [0, 1, 7])) is FetchDecision.TAKE
    assert at[AT] == 10


def test_doubtful_holes_are_fetched_again_until_they_fill() -> None:
    at = positions(holes_are_real=False)
    assert at.judge(AT, batch(0, 10, [0, 1, 7])) is FetchDecision.HOLE
    assert at[AT] == 0
    assert at.judge(AT, batch(0, 10)) is FetchDecision.TAKE


def test_doubtful_holes_that_stay_are_taken_for_real() -> None:
    at = positions(holes_are_real=False)
    verdicts = [at.judge(AT, batch(0, 10, [0, 1, 7])) for _ in range(MOST_TRIES + 1)]
    assert verdicts == [FetchDecision.HOLE] * MOST_TRIES + [FetchDecision.TAKE]


@pytest.mark.parametrize(
    ("first", "at", "end", "doubtful"),
    [(0, 0, 10, 0), (2, 2, 10, 0), (0, 9, 10, 0), (3, 3, 10, 1), (2, 2, 8, 2), (2, 2, 99, 0)],
)
def test_a_record_batch_that_cannot_be_read_is_no_hole(
    first: int, at: int, end: int, doubtful: int
) -> None:
    """It stands for all its offsets, and is not unpacked again and again."""
    fetched = batch(0, 10, [0, 1, at] if first else [at])
    fetched.values[-1] = WholeBytes(b"bomb", "too large", first, end)
    assert missing(fetched) == doubtful
    places = positions(holes_are_real=False)
    assert places.judge(AT, fetched) is (FetchDecision.HOLE if doubtful else FetchDecision.TAKE)
    assert places[AT] == (0 if doubtful else 10)


def test_each_hole_has_tries_of_its_own() -> None:
    at = positions(holes_are_real=False)
    for begin in range(0, 1000, 10):
        assert at.judge(AT, batch(begin, begin + 10, [begin])) is FetchDecision.HOLE
        assert at.judge(AT, batch(begin, begin + 10)) is FetchDecision.TAKE


def test_a_partition_of_others_is_not_known() -> None:
    at = positions()
    assert AT in at
    assert "another" not in at
    with pytest.raises(KeyError):
        at.judge("another", batch(0, 1))
