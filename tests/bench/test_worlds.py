"""The worlds of `bench learn`: the same for the same seed, true to the probabilities they state."""

from __future__ import annotations

from math import sqrt
from random import Random
from statistics import fmean

import pytest

from bench.learn import decide, rare, recovered, share
from bench.support.trace_share import hindsight, predictions, with_evidence
from bench.support.worlds import WORLDS, BenchWorld, calibrated, sparse
from demo.traces import Step, TraceRun
from learners.constant import Always, Never
from learners.registry import DEFAULT, policy


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_follows_from_its_seed(name: str) -> None:
    generate = WORLDS[name].generate
    assert generate(1) == generate(1) != generate(2)


@pytest.mark.parametrize("name", WORLDS)
def test_predictions_are_right_as_often_as_they_should_be(name: str) -> None:
    events = WORLDS[name].generate(1)
    right = sum(event.judged.outcome.correct for event in events)
    spread = sqrt(sum(event.probability * (1 - event.probability) for event in events))
    assert abs(right - sum(event.probability for event in events)) < 5 * spread


def test_the_oracle_earns_all_and_never_earns_nothing() -> None:
    events = calibrated(1)
    assert share(events, [event.worth > 0 for event in events]) == pytest.approx(1.0)
    assert share(events, decide(Never(), BenchWorld(calibrated), events)) == 0.0
    always = share(events, decide(Always(), BenchWorld(calibrated), events))
    assert always == pytest.approx(
        sum(event.worth for event in events) / sum(max(0.0, event.worth) for event in events)
    )


def test_the_default_learns_what_the_worlds_hold() -> None:
    """Far below what is measured (docs/decisions/0003): this holds a sign or an index wrong."""
    learner = policy(DEFAULT)
    for name, least in (("calibrated", 0.97), ("uneven", 0.97), ("abrupt drift", 0.9)):
        world = WORLDS[name]
        events = world.generate(5)
        assert share(events, decide(learner, world, events)) > least
    events = sparse(5)
    assert rare(events, decide(learner, WORLDS["sparse"], events)) > 0.75


def test_recovery_is_a_share_of_what_was_before() -> None:
    events = WORLDS["abrupt drift"].generate(1)
    assert recovered(events, [event.worth > 0 for event in events]) == pytest.approx(1.0)


def test_a_run_is_guessed_tool_by_tool() -> None:
    steps = tuple(Step(tool) for tool in ("a", "b", "c"))
    runs = [TraceRun("s", "d", "m", str(n), None, steps) for n in range(6)]
    judged = predictions(runs, 0, 0.6)
    last = judged[-1]
    assert last.paths[:2] == ("default", "d")
    assert (last.outcome.gain, last.outcome.cost) == (0.4, 0.6)
    assert {each.paths[2] for each in judged} >= {"d/", "d/a", "d/b"}
    assert fmean(each.outcome.correct for each in judged[-6:]) == 1.0
    assert hindsight(judged) > 0


def test_evidence_moves_a_confidence_towards_the_shorter_context() -> None:
    assert with_evidence(0.9, 0.5, 0) == 0.5
    assert with_evidence(0.9, 0.5, 1) == pytest.approx(0.7)
    assert with_evidence(0.9, 0.5, 999) == pytest.approx(0.9, abs=1e-3)


def test_evidence_changes_confidences_after_few_tries_only() -> None:
    draw = Random(4)
    runs = [
        TraceRun("s", "d", "m", str(n), None, tuple(Step(draw.choice("ab")) for _ in range(6)))
        for n in range(40)
    ]
    plain, moved = (predictions(runs, 0, 0.7, evidence=each) for each in (False, True))
    assert [each.paths for each in plain] == [each.paths for each in moved]
    assert [each.outcome.correct for each in plain] == [each.outcome.correct for each in moved]
    apart = [abs(a.outcome.confidence - b.outcome.confidence)
             for a, b in zip(plain, moved, strict=True)]  # fmt: skip
    assert max(apart[:20]) > 0.05
    assert max(apart[-20:]) < 0.05
