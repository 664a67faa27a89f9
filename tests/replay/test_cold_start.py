"""A backtest believes calibrated guesses in a cold start, exactly as a reader does."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.calibration import TRUSTED_OUTCOMES
from headstart.thresholds.threshold import Threshold, decode_value, resolve
from learners.outcome import Outcome
from learners.registry import policy
from replay.engine.engine import BacktestEngine
from replay.engine.reference import ReferenceReplay
from replay.execution.runner import Backtest, named, run_backtest
from replay.predictions.outcomes_file import ROOT
from replay.results.summary import report
from replay.sources.base import ReadOptions
from replay.sources.files import EventFile, OutcomeFile
from tests.replay.arms import FAST, RecordedAnswers, paths, stream
from tests.replay.guesses import events_of, guess

CHAIN = (ROOT, "workflow_type=a", "workflow_type=a/domain=d")


def thresholds(name: str, outcomes: list[Outcome]) -> list[float]:
    """Return what a backtest of one policy answers for outcomes of one context."""
    recorded = RecordedAnswers()
    judge = BacktestEngine({name: policy(name)}, observer=recorded)
    for each in outcomes:
        judge.judge(judge.chain("t", CHAIN), each, 0)
    judge.flush()
    return recorded.thresholds[name]


def outcomes(count: int, *, calibrated: bool, **stakes: float) -> list[Outcome]:
    draw = Random(3)
    return [
        Outcome(p := draw.random(), draw.random() < p, calibrated=calibrated, **stakes)
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", ["hops", "td"])
def test_the_first_200_outcomes_of_a_workflow_type(name: str) -> None:
    few = TRUSTED_OUTCOMES + 50
    own = thresholds(name, outcomes(few, calibrated=True, gain=400.0, cost=600.0))
    learned = thresholds(name, outcomes(few, calibrated=False, gain=400.0, cost=600.0))
    assert own[:TRUSTED_OUTCOMES] == [0.6] * TRUSTED_OUTCOMES
    assert own[TRUSTED_OUTCOMES:] == learned[TRUSTED_OUTCOMES:], "what is learned is the same"


@pytest.mark.parametrize("name", ["fixed", "never", "always"])
def test_a_constant_holds(name: str) -> None:
    both = [thresholds(name, outcomes(20, calibrated=each, gain=1.0)) for each in (True, False)]
    assert both[0] == both[1]


def test_without_stakes_of_its_own_the_averages_count() -> None:
    first = [Outcome(0.5, True, gain=100.0), Outcome(0.5, False, cost=300.0)]
    recorded = thresholds("hops", [*first, Outcome(0.5, True, calibrated=True)])
    assert recorded[-1] == 0.75


@settings(max_examples=20, deadline=None)
@given(stream, st.integers(0, 9), st.sampled_from(FAST), st.randoms(use_true_random=False))
def test_engine_and_reference_agree(
    events: list[tuple[tuple[str, str | None, str], Outcome]], delay: int, name: str, draw: Random
) -> None:
    recorded, waiting = RecordedAnswers(), []
    judge = BacktestEngine({name: policy(name)}, observer=recorded)
    replay, expected = ReferenceReplay(policy(name)), []
    for where, outcome in events * 4:
        each = msgspec.structs.replace(outcome, calibrated=draw.random() < 0.5)
        chain, own = judge.chain("t", paths(where)), paths(where)
        had = replay.outcomes(own)
        waiting.append((chain, own, each, judge.ask(chain), replay.state(own), had))
        if len(waiting) > delay:
            chain, own, each, number, state, had = waiting.pop(0)
            judge.judge(chain, each, 0, number)
            expected.append(replay.threshold(own, each, state, had))
            replay.learn(own, each)
    judge.flush()
    assert recorded.thresholds.get(name, []) == expected


def test_a_reset_begins_a_cold_start() -> None:
    recorded = RecordedAnswers()
    judge = BacktestEngine({"hops": policy("hops")}, observer=recorded)
    many = outcomes(TRUSTED_OUTCOMES, calibrated=True, gain=1.0, cost=1.0)
    for each in many:
        judge.judge(judge.chain("t", CHAIN), each, 0)
    judge.judge(judge.chain("t", CHAIN), many[0], 0)
    judge.reset(lambda _, path: path in CHAIN[1:])
    judge.judge(judge.chain("t", CHAIN), many[0], 0)
    judge.flush()
    *_, learned, afterwards = recorded.thresholds["hops"]
    assert afterwards == 0.5 != learned


def test_it_answers_what_a_reader_would() -> None:
    """The same outcomes, learned, published and read."""
    learner = policy("hops")
    states = [learner.initial()]
    states += [learner.begin(states[0])]
    own = outcomes(TRUSTED_OUTCOMES + 5, calibrated=True, gain=400.0, cost=600.0)
    recorded = thresholds("hops", own)
    answers = [Threshold()]
    for number, each in enumerate(own[:-1], start=1):
        states = list(learner.learn(states, each))
        value = {
            "speculate": 0.9, "suggest": 0.5, "epoch": 1, "offset": number, "outcomes": number,
            "learner": "hops",
        }  # fmt: skip
        answers.append(resolve(CHAIN[:0:-1], [None, decode_value(orjson.dumps(value))]))
    for expected_one, answer in zip(recorded[:TRUSTED_OUTCOMES], answers, strict=False):
        assert answer.for_guess(400.0, 600.0, calibrated=True) == expected_one
    assert not answers[TRUSTED_OUTCOMES].cold_start


def utility(source: OutcomeFile | EventFile) -> float:
    policies = named(["hops"])
    units = run_backtest(Backtest(source, policies), lambda _: None, processes=1)
    found: dict[str, Any] = report(source.name, policies, units)
    worth: float = found["policies"]["hops"]["utility"]
    return worth


def test_outcome_files_declare_it(tmp_path: Path) -> None:
    draw, earned = Random(1), []
    chances = [(p := draw.random(), draw.random() < p) for _ in range(TRUSTED_OUTCOMES)]
    for calibrated in (True, False):
        file = tmp_path / f"{calibrated}.jsonl"
        lines = [
            {"context": {"workflow_type": "refund"}, "confidence": p, "correct": right,
             "gain": 400, "cost": 600, "calibrated": calibrated}
            for p, right in chances
        ]  # fmt: skip
        file.write_bytes(b"\n".join(map(orjson.dumps, lines)))
        earned.append(utility(OutcomeFile(file, ReadOptions())))
    started = [right for p, right in chances if p >= 0.6]
    assert earned[0] == sum(400 if right else -600 for right in started)
    assert earned[0] != earned[1]


def test_logs_declare_it(tmp_path: Path) -> None:
    """On the start, and on a completion that counts at once."""
    draw = Random(5)
    guesses = [{**guess(number, draw), "why": None} for number in range(TRUSTED_OUTCOMES)]
    events = [event for each in guesses for event in events_of(each)]
    for event in events:
        if "confidence" in event:
            event["data"]["prediction"] |= {"calibrated": True, "evidence": {"tries": 3}}
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    started = [each["correct"] for each in guesses if each["confidence"] >= 0.6]
    assert utility(EventFile(file, ReadOptions())) == sum(
        400 if right else -600 for right in started
    )
