"""What is counted per context, and the gain and cost that are learned there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.outcome import Outcome
from learners.registry import policy
from processing.config import LearningConfig, Objectives
from processing.contexts.thresholds import threshold_from_row
from processing.state.counters import add, count, empty, metrics, outcome_row, restored, stored
from processing.state.rows import context_key
from processing.task import PartitionTask
from tests.processing.building import EPOCH, Table, event, fetch, judged, reasons
from topics.schema.json_schema import Counts

outcomes = st.builds(
    Outcome,
    confidence=st.floats(0, 1),
    correct=st.booleans(),
    speculated=st.booleans(),
    gain=st.floats(0, 1e6),
    cost=st.floats(0, 1e6),
    execution_ms=st.floats(0, 1e6),
    mode=st.sampled_from(["speculative", "suggestion", "explicit"]),
)


@given(st.lists(outcomes), st.lists(outcomes))
def test_parts_add_up_however_they_are_cut(first: list[Outcome], second: list[Outcome]) -> None:
    whole, one, two = (
        count([outcome_row(each, None) for each in part])
        for part in (first + second, first, second)
    )
    add(one, two)
    assert one == whole
    outcomes, speculated, hits, rest = stored(whole)
    assert outcomes == len(first) + len(second)
    assert restored(outcomes, speculated, hits, rest) == whole


def test_a_row_of_an_old_version_gives_what_it_has() -> None:
    found = metrics(Counts(*restored(9, 4, 3, ())))
    assert (found["attempts"], found["hits"], found["misses"]) == (9, 3, 1)
    assert found["modes"]["speculative"]["fp"] == 0.25


def done(
    correct: bool, speculated: bool, mode: str = "explicit", **result: float
) -> dict[str, Any]:
    prediction = {"was_correct": correct, "speculated": speculated, "mode": mode}
    return judged(data={"prediction": prediction, "result": result}, confidence=0.5)


def feedback(accepted: bool, **fields: Any) -> dict[str, Any]:
    return event("user_feedback", **{"confidence": 0.9, "data": {"accepted": accepted}, **fields})


def run(rules: LearningConfig, *records: Any, cuts: bool = False) -> tuple[Table, Any]:
    table: Table = {}
    core = PartitionTask(0, 1, EPOCH, rules, table.get)
    core.restore([])
    commit = None
    for offset, record in enumerate(records):
        core.apply(fetch(record, offsets=[offset]))
        if cuts or offset == len(records) - 1:
            commit = core.commit()
            table.update(commit.rows)
    return table, commit


def shown(table: Table) -> Any:
    key = context_key("acme", "workflow_type=refund")
    return threshold_from_row(key, table[key])


def test_the_metrics_of_a_context() -> None:
    log = [
        done(True, True, gain_ms=300, execution_time_ms=100),
        done(True, True, gain_ms=100),
        done(False, True, cost_ms=50),
        done(True, False, "suggestion"),
        done(False, False, "suggestion"),
        done(True, False),
        feedback(True),
        feedback(False),
        feedback(True, confidence=None),
    ]
    table, _ = run(LearningConfig(policy("td")), *log)
    assert table == run(LearningConfig(policy("td")), *log, cuts=True)[0]
    found = metrics(shown(table).counts)
    assert shown(table).outcomes == found["attempts"] == 6
    assert (found["hits"], found["misses"]) == (2, 1)
    assert (found["saved_ms"], found["wasted_ms"]) == (400.0, 50.0)
    assert found["mean_execution_ms"] == 100.0
    assert found["mean_confidence"] == 0.5
    assert found["fp_rate"] == pytest.approx(1 / 3)
    assert found["fn_rate"] == pytest.approx(2 / 3)
    assert found["modes"]["suggestion"]["fp"] == found["modes"]["suggestion"]["fn"] == 0.5
    assert (found["feedback"], found["feedback_accepted"]) == (2, 1)


def test_feedback_is_learned_from_as_often_as_it_weighs() -> None:
    plain, thrice = (LearningConfig(policy("td"), feedback_weight=weight) for weight in (1, 3))
    table, _ = run(thrice, feedback(False))
    again, _ = run(plain, *[feedback(False)] * 3)
    assert shown(table).speculate == shown(again).speculate
    assert shown(table).outcomes == 0
    ignored, _ = run(LearningConfig(policy("td"), feedback_weight=0), feedback(False))
    assert ignored.keys() == {b"@partition"}


def test_learned_gain_and_cost_replace_missing_ones() -> None:
    known = [
        done(True, True, gain_ms=400, cost_ms=100),
        done(False, True, gain_ms=400, cost_ms=100),
    ]
    table, _ = run(LearningConfig(policy("hops")), *known, *[done(True, True)] * 3)
    expected, _ = run(
        LearningConfig(policy("hops")), *known, *[done(True, True, gain_ms=400, cost_ms=100)] * 3
    )
    assert (shown(table).gain, shown(table).cost) == (400.0, 100.0)
    assert shown(table).speculate == shown(expected).speculate


def test_weights_move_the_threshold() -> None:
    log = [done(True, True, gain_ms=400, cost_ms=100)] * 5
    found = [
        shown(run(LearningConfig(policy("hops"), weights=weights), *log)[0]).speculate
        for weights in (
            Objectives(latency=4),
            Objectives(),
            Objectives(cost=4),
            Objectives(success=2, cost=4),
        )
    ]
    assert found == sorted(found)
    assert len(set(found)) == 4


def test_an_unusable_gain_is_a_dead_letter() -> None:
    _, commit = run(LearningConfig(policy("td")), done(True, True, gain_ms=1e18))
    assert "gain and cost must be" in reasons(commit)[0]


def test_counting_is_held_within_what_a_row_can_keep() -> None:
    counts = empty()
    add(counts, [2**63 - 1] * len(counts))
    add(counts, [5] * len(counts))
    assert max(counts) == 2**63 - 1
