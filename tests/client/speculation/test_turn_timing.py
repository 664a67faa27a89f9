"""What guessed calls save of a turn: only what they shorten it by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.speculation.turn_timing import saved_ms, turn_ms

ms = st.floats(0.0, 1e4)
turns = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), ms, min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("durations", "starts", "parallel", "saved"),
    [
        ({"a": 500}, {"a": 200}, True, {"a": 200}),
        ({"a": 500}, {"a": 900}, True, {"a": 500}),
        ({"a": 500, "b": 300}, {"a": 400}, True, {"a": 200}),
        ({"a": 500, "b": 800}, {"a": 400}, True, {"a": 0}),
        ({"a": 500, "b": 800}, {"a": 400}, False, {"a": 400}),
        ({"b": 800, "a": 1000}, {"a": 400}, False, {"a": 1000}),
        ({"a": 500, "b": 100}, {"a": 400, "b": 400}, True, {"a": 400, "b": 0}),
        ({"a": 500, "b": 500}, {"a": 400, "b": 400}, True, {"a": 200, "b": 200}),
        ({}, {"a": 400}, True, {}),
    ],
)
def test_what_is_saved(
    durations: dict[str, float], starts: dict[str, float], parallel: bool, saved: dict[str, float]
) -> None:
    assert saved_ms(durations, starts, parallel=parallel) == pytest.approx(saved)


@given(turns, st.data(), st.booleans())
def test_the_shares_sum_to_what_the_turn_is_shorter_by(
    durations: dict[str, float], data: st.DataObject, parallel: bool
) -> None:
    hits = data.draw(st.sets(st.sampled_from(sorted(durations))))
    starts = {hit: data.draw(ms) for hit in sorted(hits)}
    saved = saved_ms(durations, starts, parallel=parallel)
    shorter = turn_ms(durations, {}, parallel=parallel) - turn_ms(
        durations, starts, parallel=parallel
    )
    assert sum(saved.values()) == pytest.approx(shorter, abs=1e-6)
    assert set(saved) == hits
    assert all(
        0.0 <= each <= durations[hit] + sum(durations.values()) for hit, each in saved.items()
    )


def test_many_hits_of_one_turn_are_no_burden() -> None:
    durations = {str(number): 100.0 for number in range(40)}
    saved = saved_ms(durations, dict.fromkeys(durations, 50.0))
    assert sum(saved.values()) <= 50.0
