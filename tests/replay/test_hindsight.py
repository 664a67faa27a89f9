"""No decision of a backtest uses a gain or cost that is known from the outcome only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from learners.outcome import Outcome
from learners.registry import policy
from processing.contexts.vectorized_update import STAKES_RATE
from replay.engine.engine import BacktestEngine
from replay.execution.runner import Backtest, named, run_backtest
from replay.execution.tuning import tune
from replay.predictions.assumptions import COST, GAIN, Assumed, AssumedOutcome
from replay.predictions.outcomes_file import ROOT
from replay.predictions.stakes import UNKNOWN, StakesHistory
from replay.results.summary import report
from replay.sources.base import PredictionSource, ReadOptions
from replay.sources.files import EventFile, OutcomeFile

POLICIES = named(["hops", "histogram", "hedge", "meta", "always"])
CHAIN = (ROOT, "workflow_type=a", "workflow_type=a/user_id=u")
Stakes = Callable[[bool, Random], dict[str, float]]


def of_one_side(correct: bool, draw: Random) -> dict[str, float]:
    return {"gain": 400.0} if correct else {"cost": 600.0}


def zero_on_the_other(correct: bool, draw: Random) -> dict[str, float]:
    return {"gain": 400.0, "cost": 0.0} if correct else {"gain": 0.0, "cost": 600.0}


def both_of_misses(correct: bool, draw: Random) -> dict[str, float]:
    """What the client logs where a guess names its gain, and the cost of a miss is measured."""
    return {"gain": 500.0} if correct else {"gain": 500.0, "cost": draw.uniform(0, 1_000)}


def both_of_hits(correct: bool, draw: Random) -> dict[str, float]:
    return {"gain": 400.0, "cost": 1.0} if correct else {"cost": 600.0}


def outcomes(folder: Path, stakes: Stakes, count: int = 3_000, **options: Any) -> OutcomeFile:
    """Return noise: confidence and outcome are independent."""
    draw, file = Random(7), folder / "noise.jsonl"
    with file.open("wb") as lines:
        for number in range(count):
            correct = draw.random() < 0.5
            line = {
                "context": {"workflow_type": "refund"}, "confidence": draw.random(),
                "correct": correct, "workflow_id": f"w{number // 3}",
                "at": 1_790_000_000_000 + number * 1_000, **stakes(correct, draw),
            }  # fmt: skip
            lines.write(orjson.dumps(line) + b"\n")
    return OutcomeFile(file, ReadOptions(**options))


def events(folder: Path, stakes: Stakes, *, starts: bool) -> EventFile:
    draw, file = Random(7), folder / "noise.jsonl"
    with file.open("wb") as lines:
        for number in range(3_000):
            correct, at = draw.random() < 0.5, 1_790_000_000_000 + number * 1_000
            result = {f"{name}_ms": value for name, value in stakes(correct, draw).items()}
            guess = {"confidence": draw.random()}
            of = {"workflow_type": "refund", "workflow_id": f"w{number}", "task_id": "t"}
            end = {"prediction": {"was_correct": correct}, "result": result}
            if starts:
                start = {**of, **guess, "event_type": "speculation_start", "timestamp": at}
                lines.write(orjson.dumps({**start, "data": {"prediction": {}}}) + b"\n")
            else:
                of |= guess
            end = {**of, "event_type": "task_complete", "timestamp": at + 1, "data": end}
            lines.write(orjson.dumps(end) + b"\n")
    return EventFile(file, ReadOptions())


def earned(source: PredictionSource) -> dict[str, tuple[float, float]]:
    """Return what each policy earned, and the share of hits among what it started."""
    units = run_backtest(Backtest(source, POLICIES), lambda _: None, processes=1)
    found = report(source.name, POLICIES, units)["policies"]
    return {name: (each["utility"], each["success_rate"] or 0.0) for name, each in found.items()}


@pytest.mark.parametrize("stakes", [of_one_side, zero_on_the_other, both_of_misses, both_of_hits])
def test_nothing_is_earned_on_noise_by_what_is_recorded(tmp_path: Path, stakes: Stakes) -> None:
    for name, (utility, right) in earned(outcomes(tmp_path, stakes)).items():
        assert right < 0.56, name
        assert utility < 40_000.0, name  # chance; 560,000 and more if the outcome is known


@pytest.mark.parametrize("starts", [False, True])
def test_nothing_is_earned_on_noise_of_events(tmp_path: Path, starts: bool) -> None:
    for name, (utility, right) in earned(events(tmp_path, of_one_side, starts=starts)).items():
        assert right < 0.56, name
        assert utility < 40_000.0, name


@pytest.mark.parametrize("options", [(400.0, 600.0), (100.0, 100.0), (None, 600.0)])
def test_options_for_missing_figures_reveal_nothing(
    tmp_path: Path, options: tuple[float | None, float | None]
) -> None:
    for name, (utility, _) in earned(
        outcomes(tmp_path, of_one_side, assumed=Assumed(*options))
    ).items():
        assert utility < 40_000.0, name


def test_tune_finds_no_winner_in_noise(tmp_path: Path) -> None:
    source = outcomes(tmp_path, of_one_side)
    assert not tune(source, ["hops", "histogram"], "never", lambda _: None, processes=1).better


def test_figures_that_all_record_are_used() -> None:
    history = StakesHistory[str]()
    one = Outcome(0.5, correct=True, gain=3.0, cost=4.0)
    assert history.known(CHAIN, one) == (3.0, 4.0)
    assert history.learn(CHAIN, one) is one
    partial = Outcome(0.5, correct=False, cost=8.0)
    assert history.known(CHAIN, partial) == UNKNOWN
    assert history.learn(CHAIN, partial) == Outcome(0.5, correct=False, gain=3.0, cost=8.0)
    assert history.known(CHAIN, one) == UNKNOWN, "one of its workflow type lacked something"
    assert history.known((ROOT, "workflow_type=b"), one) == (3.0, 4.0)
    history.reset({CHAIN[1]})
    assert history.known(CHAIN, one) == (3.0, 4.0)


def test_figures_assumed_for_all_are_used() -> None:
    history = StakesHistory[str]()
    one = AssumedOutcome(0.5, correct=True, gain=3.0, cost=0.0, assumed=GAIN | COST)
    assert history.known(CHAIN, one) == (3.0, 0.0)
    assert history.learn(CHAIN, one) is one, "an assumed 0 is no gap"
    assert history.known(CHAIN, Outcome(0.5, correct=True, gain=3.0, cost=4.0)) == UNKNOWN


def test_gaps_are_learned_as_the_average_of_hits_or_misses() -> None:
    history = StakesHistory[str]()
    for gain, cost, correct in ((100.0, 7.0, True), (200.0, 7.0, True), (50.0, 10.0, False)):
        history.learn(CHAIN, Outcome(0.5, correct, gain=gain, cost=cost))
    other = (*CHAIN[:2], "workflow_type=a/user_id=v")
    assert history.learn(other, Outcome(0.5, correct=True)) == Outcome(
        0.5, correct=True, gain=100.0 + STAKES_RATE * 100.0, cost=10.0
    )


def test_gaps_do_not_change_what_a_guess_is_worth() -> None:
    engine = BacktestEngine({"always": policy("always")})
    chain = engine.chain("", CHAIN)
    for outcome in (Outcome(0.5, True, gain=400.0), Outcome(0.5, False), Outcome(0.5, True)):
        engine.judge(chain, outcome, 0)
    engine.flush()
    totals = engine.parts[0].totals["always"]
    assert (sum(totals.saved), sum(totals.wasted)) == (400.0, 0.0)
