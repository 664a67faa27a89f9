"""What operators had forgotten, a backtest's arms forget, too: at the same place of the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.outcome import Outcome
from learners.registry import POLICIES, policy
from processing.control.learner_assignments import matcher
from replay.engine.engine import BacktestEngine
from replay.engine.join import Filter, PredictionJoiner
from replay.engine.reference import ReferenceReplay
from replay.predictions.notes import Notes
from replay.predictions.what_if import PayoffScales
from tests.processing.building import EPOCH, NOW, event, fetch, judged, start
from tests.processing.control_records import record
from tests.replay.arms import FAST, RecordedAnswers, paths, stream
from topics.control.messages import Clock, Control, LearnerChoice, Reset

PATTERNS = ("*", "workflow_type=a", "domain=d", "workflow_type=b/user_id=*", "workflow_type=z")


@settings(max_examples=30, deadline=None)
@given(stream, st.lists(st.tuples(st.integers(0, 120), st.sampled_from(PATTERNS)), max_size=3))
def test_arms_forget_what_a_pattern_holds_for_and_nothing_else(
    events: list[tuple[tuple[str, str | None, str], Outcome]], resets: list[tuple[int, str]]
) -> None:
    recorded = RecordedAnswers()
    judge = BacktestEngine({name: policy(name) for name in FAST}, observer=recorded)
    replays = {name: ReferenceReplay(policy(name)) for name in FAST}
    expected: dict[str, list[float]] = {name: [] for name in FAST}
    for number, (where, outcome) in enumerate(events):
        for _, pattern in (each for each in resets if each[0] == number):
            holds = matcher(pattern, "t")
            judge.reset(holds)
            for replay in replays.values():
                replay.forget(lambda path, holds=holds: holds("t", path))
        for name, replay in replays.items():
            expected[name].append(replay.threshold(paths(where), outcome))
            replay.learn(paths(where), outcome)
        judge.judge(judge.chain("t", paths(where)), outcome, 0)
    judge.flush()
    assert recorded.thresholds == expected


def walked(*log: Any, stamp: int = NOW) -> list[float]:
    """Return the thresholds of TD over events and control records, by way of the joiner.

    `stamp`: the Kafka timestamp of every record.
    """
    recorded = RecordedAnswers()
    judge = BacktestEngine({"td": policy("td")}, observer=recorded)
    joiner = PredictionJoiner(0, 1, EPOCH, judge, ("domain",), Filter(), PayoffScales())
    notes = Notes()
    for offset, each in enumerate(log):
        value, headers = record(each) if isinstance(each, Control) else (each, None)
        batch = fetch(value, offsets=[offset])
        batch.timestamps[0] = stamp
        if headers is not None:
            batch.headers[offset] = headers
        joiner.take(batch, notes)
    joiner.end(notes)
    assert notes.refused == 0
    return recorded.thresholds["td"]


def reset(at: int = NOW, **fields: Any) -> Reset:
    return Reset(**{"id": "r1", "at": at, "pattern": "*", **fields})


def test_a_reset_on_the_log_is_followed_once() -> None:
    before = walked(*[judged(False)] * 5)
    assert before[0] < before[-1]
    assert walked(*[judged(False)] * 3, reset(), *[judged(False)] * 2) == before[:3] + before[:2]
    again = walked(reset(), *[judged(False)] * 3, reset(), *[judged(False)] * 2)
    assert again == before, "the same one a second time forgets nothing more"
    assert walked(*[judged(False)] * 3, reset(tenant="globex"), *[judged(False)] * 2) == before


@pytest.mark.parametrize("learner", ["hops", "never"])
def test_the_live_learner_does_not_matter_to_an_arm(learner: str) -> None:
    choice = LearnerChoice("c1", NOW, "*", learner)
    events = [judged(False)] * 4
    assert walked(choice, *events) == walked(*events)
    assert learner in POLICIES


def test_a_backtest_follows_clock_records() -> None:
    """A guess whose end comes after a foreign event from the future is still judged."""
    opened = start(timestamp=NOW, workflow_id="slow")
    done = event(timestamp=NOW + 9, workflow_id="slow", task_id="t1", tool_id="search")
    fast = judged(timestamp=NOW + 3_600_000)
    later = judged(timestamp=NOW + 3_600_000, workflow_id="w2")
    assert len(walked(opened, fast, later, done)) == 3
    two_hours = judged(timestamp=NOW + 7_200_000)
    stamped = NOW + 7_200_000
    assert len(walked(opened, two_hours, done, stamp=stamped)) == 1, "as in a log of old"
    assert len(walked(Clock("c", NOW), opened, two_hours, done, stamp=stamped)) == 2
