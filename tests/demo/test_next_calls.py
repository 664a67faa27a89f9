"""Guesses before the calls of recorded runs: whole calls with arguments, else names."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.executor import stated_outcome
from demo.next_calls import CallGuesser, GuessedStep, with_arguments
from demo.predictor import PredictedTool
from demo.trace_source import TraceHistory
from demo.traces import Step, TraceRun, read_runs
from replay.predictions.assumptions import Basis
from replay.predictions.notes import Notes
from replay.sources.base import ReadOptions
from tests.replay.recorded_runs import shop_runs, write_runs


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Recorded runs in the form of the demo, with content."""
    found = []
    for number, run in enumerate(shop_runs(30)):
        steps = [{**step, "error": False} for step in run["steps"]]
        found.append({**run, "source": "shop", "task_id": str(number), "steps": steps})
    return write_runs(tmp_path / "traces.jsonl", found)


def runs_of(file: Path) -> list[TraceRun]:
    return list(read_runs(file, with_content=True))


def test_a_guess_is_right_if_all_arguments_are(traces: Path) -> None:
    guesser = CallGuesser()
    *_, last = [list(guesser.steps("shop", run)) for run in runs_of(traces)]
    assert [each.step.tool if each.step else None for each in last] == [
        "get_user", "get_order", "get_order", None,
    ]  # fmt: skip
    assert all(each.right for each in last if each.step)
    assert last[2].tools == ("get_user", "get_order")
    assert list(guesser.runs.sentences) == [
        "30 runs have arguments: guesses are whole calls, right if exact"
    ]


def test_without_arguments_names_are_guessed() -> None:
    guesser, run = CallGuesser(), TraceRun("s", "d", "m", "1", None, (Step("a"), Step("b")))
    assert with_arguments(run) is None
    *_, last = [list(guesser.steps("d", run)) for _ in range(5)]
    assert [each.guess.tool if each.guess else None for each in last] == ["a", "b", None]
    assert "names of tools alone" in next(iter(guesser.runs.sentences))


@pytest.mark.parametrize("unknown", [None, "null"])
@pytest.mark.parametrize("every", [True, False])
def test_unknown_arguments_are_never_exact(tmp_path: Path, unknown: object, every: bool) -> None:
    steps = [{"tool": tool, "error": False, "args": {"x": 1}} for tool in ("a", "b")]
    for step in steps if every else steps[1:]:
        step["args"] = unknown
    run = {"source": "s", "domain": "d", "agent_model": "m", "task_id": "1", "steps": steps}
    (read,) = runs_of(write_runs(tmp_path / "null.jsonl", [run]))
    assert with_arguments(read) is None
    guesser = CallGuesser()
    list(guesser.steps("d", read))
    assert (guesser.runs.whole, guesser.runs.names) == (0, 1)


def test_a_backtest_judges_whole_calls(traces: Path) -> None:
    notes, history = Notes(), TraceHistory(traces, ReadOptions())
    judged = [each for some, _ in history.predictions(0, notes, Basis()) for each in some]
    assert notes.predictions == len(judged)
    assert notes.events == 30 * 4  # three calls and a reply
    assert sum(each.outcome.correct for each in judged) >= 80
    assert any("guesses are whole calls" in each for each in notes.warnings)


@pytest.mark.parametrize(
    ("step", "right", "stated"),
    [
        (Step("a"), True, None),
        (Step("b"), False, None),
        (Step("a"), False, False),  # the same tool with other arguments
        (None, False, False),  # a reply
    ],
)
def test_an_outcome_that_names_do_not_determine_is_recorded(
    step: Step | None, right: bool, stated: bool | None
) -> None:
    guess = PredictedTool("a", 0.9)
    found = stated_outcome(GuessedStep(step, guess, right, ()), guess, started=True, failed=False)
    assert (None if found is None else found["was_correct"]) is stated
    assert found is None or "failed" not in found
