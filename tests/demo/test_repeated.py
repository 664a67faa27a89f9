"""A run that is there twice counts once; one that only has its identity counts, and is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from demo.checked import checked_runs
from demo.executor import stated_outcome
from demo.log_oracle import _is_hit
from demo.next_calls import GuessedStep
from demo.predictor import PredictedTool
from demo.trace_source import TraceHistory
from demo.traces import Step
from learners.registry import policy
from replay.engine.engine import BacktestEngine
from replay.execution.feed import feed
from replay.importers.agent_runs import Unmapped
from replay.predictions.notes import Notes
from replay.sources.base import ReadOptions


def run(task: str = "1", tool: str = "a", **more: Any) -> dict[str, Any]:
    steps = [{"tool": tool, "error": False}]
    own = {"source": "x", "domain": "d", "agent_model": "m", "task_id": task, "trial": 0}
    return {**own, "started_at": 1_790_000_000_000, "steps": steps, **more}


def written(folder: Path, name: str, *lines: dict[str, Any]) -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize(
    ("first", "second", "kept", "dropped", "alike"),
    [
        (run(), run(), 1, 1, 0),
        (run(run_id="r"), run(run_id="r"), 1, 1, 0),
        (run(run_id="r"), run(run_id="s"), 2, 0, 0),
        (run(run_id="r"), run("2", run_id="r"), 2, 0, 1),
        (run(), run(trial=1), 2, 0, 0),
        (run(), run(tool="b"), 2, 0, 1),
        (run(), run(started_at=1_790_000_000_001), 2, 0, 1),
        (run(started_at=None), run(started_at=None, reward=1.0), 1, 1, 0),
    ],
)
def test_duplicate_runs(
    tmp_path: Path, first: Any, second: Any, kept: int, dropped: int, alike: int
) -> None:
    apart = [written(tmp_path, "1.jsonl", first), written(tmp_path, "2.jsonl", second)]
    together = written(tmp_path, "3.jsonl", first, second)
    for files in (apart, [together]):
        unmapped = Unmapped()
        runs = list(checked_runs(files, unmapped))
        found = (len(runs), unmapped.duplicates["runs"], unmapped.alike)
        assert found == (kept, dropped, alike)
        assert runs[0].get("run_id") == first.get("run_id")


def test_a_backtest_counts_it_once_and_reports_it(tmp_path: Path) -> None:
    lines = [run(str(number)) for number in range(9)]
    notes, once = Notes(), Notes()
    for found, given in ((once, lines), (notes, [*lines, *lines, run("3", "b")])):
        file = written(tmp_path, "runs.jsonl", *given)
        feed(TraceHistory(file, ReadOptions()), 0, BacktestEngine({"td": policy("td")}), found)
    assert notes.predictions == once.predictions + 1
    text = " ".join(notes.warnings)
    assert "9 runs are there more than once" in text
    assert "1 runs have the identity of another run" in text
    (names,) = once.warnings
    assert names.endswith(
        "9 runs have no arguments, or a call whose arguments are not known: "
        "guesses are names of tools alone"
    )


@pytest.mark.parametrize("started", [True, False])
def test_a_right_guess_of_a_failed_call_is_not_a_hit(started: bool) -> None:
    guess = PredictedTool("a", 0.9)
    guessed = GuessedStep(Step("a", error=True), guess, True, ())
    outcome = stated_outcome(guessed, guess, started=started, failed=True)
    assert outcome is not None
    assert outcome["was_correct"] is False
    assert outcome.get("failed", False) is outcome["speculated"] is started
    start, done = {"tool_id": "a"}, {"tool_id": "a", "data": {"result": {}}}
    assert _is_hit(start, done)
    assert not _is_hit(start, {**done, "data": {"prediction": outcome}})
