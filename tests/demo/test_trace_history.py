"""Recorded runs as a history: what is chosen is judged, and what is left out has taught as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo.trace_source import TraceHistory
from learners.registry import policy
from replay.engine.engine import BacktestEngine
from replay.engine.join import Filter
from replay.execution.feed import feed
from replay.predictions.notes import Notes
from replay.predictions.what_if import PayoffScales
from replay.sources.base import ReadOptions, TimeRange

HOUR = 3_600_000


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    lines = []
    for number in range(30):
        steps = [
            {"tool": tool, "called_at": None, "returned_at": None, "error": False}
            for tool in ("find", "book", "pay")
        ]
        lines.append({
            "source": "one" if number % 3 else "other", "agent_model": "m", "trial": None,
            "domain": "retail" if number % 2 else "airline", "task_id": str(number),
            "started_at": None if number == 29 else HOUR * number or 1, "steps": steps,
        })  # fmt: skip
    file = tmp_path / "runs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def judged(file: Path, reading: ReadOptions) -> tuple[Notes, set[tuple[str, str]]]:
    notes, judge = Notes(), BacktestEngine({"td": policy("td")})
    feed(TraceHistory(file, reading), 0, judge, notes)
    assert sum(judge.parts[0].counts) == notes.predictions
    return notes, {(tenant, path.split("/")[0]) for tenant, path in judge.contexts.places}


def test_only_selected_runs_are_evaluated(runs: Path) -> None:
    every, places = judged(runs, ReadOptions())
    assert every.filtered == 0
    assert len(places) == 6
    for chosen in (Filter(domain="retail"), Filter(workflow_type="retail")):
        some, places = judged(runs, ReadOptions(chosen=chosen))
        assert 0 < some.predictions < every.predictions == some.predictions + some.filtered
        assert {path for _, path in places} == {"default", "workflow_type=retail"}
    assert {tenant for tenant, _ in judged(runs, ReadOptions(chosen=Filter("one")))[1]} == {"one"}


def test_a_range_of_time(runs: Path) -> None:
    every, _ = judged(runs, ReadOptions())
    first, _ = judged(runs, ReadOptions(range=TimeRange(until=15 * HOUR)))
    assert 0 < first.predictions < every.predictions
    assert "1 runs have no time" in first.warnings[0]
    assert judged(runs, ReadOptions(range=TimeRange(since=40 * HOUR)))[0].predictions == 0


def test_scales_of_guessed_tools_are_noted(runs: Path) -> None:
    """What was scaled is not reported as a tool that no prediction is of."""
    scales = PayoffScales(gain={"book": 2.0, "": 1.5}, cost={"bok": 3.0})
    notes, _ = judged(runs, ReadOptions(scales=scales))
    assert notes.scaled == ["book"]
