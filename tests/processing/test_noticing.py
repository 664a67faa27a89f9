"""Published values to notices: once each, however they are batched, compacted or repeated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.context_detectors import BLOCK, DetectorState, OutcomeCounts
from processing.notices import (
    NoticeState,
    decode_state,
    encode_state,
    needed,
    watchable,
)
from tests.processing.notice_streams import RETAIL, Stored, drifting, flooded, run, value
from topics.notices.messages import downweight_for
from topics.schema.json_schema import PublishedThreshold

STREAM = drifting(5, 6_000, 4_000)


def kinds(stored: Stored) -> list[str]:
    return [each.kind for each in stored.notices if each.kind != "threshold_converged"]


def test_a_drift_gives_one_notice_with_its_evidence() -> None:
    (drift,) = [each for each in run(STREAM).notices if each.kind == "drift"]
    assert (drift.tenant, drift.workflow_type, drift.path) == ("acme", "refund", RETAIL)
    assert drift.evidence["way"] == "worse"
    assert 40_000 < drift.at < 46_000


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_neither_batches_nor_restarts_change_anything(cuts: list[int]) -> None:
    plain, cut = run(STREAM), run(STREAM, cuts)
    assert (cut.notices, cut.states) == (plain.notices, plain.states)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, len(STREAM) - 1), min_size=1, max_size=60))
def test_values_that_come_again_or_late_change_nothing(again: list[int]) -> None:
    values: list[PublishedThreshold] = []
    for place, each in enumerate(STREAM):
        values.append(each)
        values += [STREAM[old] for old in again if old <= place and place % 97 == 0]
    assert run(values).notices == run(STREAM).notices


@pytest.mark.parametrize("kept", [3, 40, 500])
def test_a_compacted_topic_still_shows_the_drift(kept: int) -> None:
    assert "drift" in kinds(run(STREAM[::kept]))


def test_a_deleted_context_keeps_nothing_and_starts_from_nothing() -> None:
    gone = value(RETAIL, 7_000, 0, 0, 0.0, deleted=True, learner="", counts=None)
    stored = run([*STREAM, gone])
    assert stored.states == {}
    late = STREAM[-1]  # of before
    again = [value(RETAIL, 8_000 + n, n, n, 0.9 * n) for n in range(1, 2 * BLOCK + 1)]
    stored.take([late, *again])
    state = decode_state(stored.states["acme", RETAIL])
    assert state is not None
    assert state.known == 2 * BLOCK


def test_the_detectors_of_a_seeded_context_restart_without_a_notice() -> None:
    seeded = [value(RETAIL, 7_000 + n, 9_000 + n, 30 + n, 0.9 * n) for n in range(1, 3_000)]
    stored = run([*STREAM, *seeded])
    assert kinds(stored) == kinds(run(STREAM))


def test_a_context_known_of_old_is_looked_at_from_now_on() -> None:
    stored = Stored()
    stored.newest["acme", RETAIL] = NoticeState(3, 5, 100_000)
    stored.take([value(RETAIL, n, 100_000 + n, 90_000 + n, 95_000.0 + n) for n in range(10, 200)])
    state = decode_state(stored.states["acme", RETAIL])
    assert state is not None
    assert (state.known, state.seen.outcomes) == (BLOCK, 100_010 + BLOCK)


def test_a_flooding_user_is_reported_and_downweighted_until_it_is_over() -> None:
    stored = run(flooded(16_000, range(6_000, 10_000)), range(0, 36_000, 450))
    floods = [each for each in stored.notices if each.evidence.get("what") == "user"]
    begun, over = floods
    assert begun.evidence["user"] == "b%d"
    assert begun.evidence["every"] > 8
    assert 0.75 <= begun.evidence["share"] <= 1
    held, free = downweight_for(begun), downweight_for(over)
    assert held is not None
    assert free is not None
    assert held.path == free.path == f"{RETAIL}/user_id=b%25d"
    assert (held.id, held.every, held.at) == (begun.id, begun.evidence["every"], begun.at)
    assert free.every == 1
    assert (held.at, held.id) < (free.at, free.id)
    others = [each for each in stored.notices if each not in floods]
    assert [downweight_for(each) for each in others] == [None] * len(others)


def test_ids_are_different_and_what_is_needed_is_asked_for() -> None:
    stored = run(flooded(16_000, range(6_000, 10_000)))
    assert len({each.id for each in stored.notices}) == len(stored.notices)
    path = f"{RETAIL}/user_id=u1"
    assert needed([(0, value(path, 1, 1, 1, 1.0))]) == {("acme", path), ("acme", RETAIL)}
    assert needed([(0, value(RETAIL, 1, 1, 1, 1.0))]) == {("acme", RETAIL)}


@pytest.mark.parametrize(
    "more",
    [{"workflow_type": "", "path": "default"}, {"tenant": "a\0"}, {"workflow_type": "a\0"},
     {"path": "p" * 3_000},
     {"offset": 2**63}, {"outcomes": -5}, {"at": -7}, {"counts": None}, {"speculate": 5.0}],
    ids=str,
)  # fmt: skip
def test_values_that_are_not_contexts_are_skipped(more: dict[str, object]) -> None:
    assert watchable(value(RETAIL, 1, 1, 1, 1.0))
    given = {"path": RETAIL, "offset": 1, "outcomes": 1, **more}
    each = value(right=1, sure=1.0, **given)  # type: ignore[arg-type]
    assert not watchable(each)


whole = st.integers(0, 2**62)
states = st.builds(
    DetectorState, st.builds(OutcomeCounts, *[whole] * 7), whole, whole, st.integers(0, 255), whole,
    *(st.tuples(*[st.floats(-1e9, 1e9)] * n) for n in (5, 5, 3, 2)),
)  # fmt: skip


@given(states)
def test_a_state_comes_back(state: DetectorState) -> None:
    raw = encode_state(state)
    assert decode_state(raw) == state
    assert decode_state(b"\2" + raw[1:]) is None
    assert decode_state(raw[:-1]) is None
    assert decode_state(None) is None
