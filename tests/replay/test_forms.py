"""Laws of forms: the names in a file determine its form; a wrong value is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.files.forms import FormMatch, detect_form
from replay.predictions.outcomes_file import OutcomeError, read_outcomes
from replay.sources.base import NothingThere, ReadOptions
from replay.sources.files import EventFile, OutcomeFile, UnknownFile, open_file

HEADER = "workflow_type,confidence,correct,gain,cost"
OUTCOME = {"context": {"workflow_type": "r"}, "confidence": 0.8, "correct": True}


def recognized(folder: Path, text: str) -> FormMatch:
    file = folder / "x"
    file.write_text(text)
    return detect_form(file)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}\nr,.8,,400,600\n",
        f"{HEADER}\n",
        "workflow_type,confidence,gain\nr,.8,400\n",
        "Workflow_Type,Confidence,Correct\nr,.8,true\n",
        '{"confidence": 0.8, "correct": true, "cost": Infinity}\n',
        '{"confidence": 0.8, "correct": true, "cost": 1e999}\n',
        '{"confidence": 0.8, "correct": tru\n',
        '{"context": {}, "confidence": 0.8, "gain": 400}\n',
        f'{{"correct": nope}}\n{json.dumps(OUTCOME)}\n',
    ],
)
def test_wrong_values_hide_no_outcomes(tmp_path: Path, text: str) -> None:
    assert recognized(tmp_path, text).form == "outcomes"
    assert isinstance(open_file(tmp_path / "x", ReadOptions()), OutcomeFile)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("event_type,tenant\n,a\n", "events"),
        ('{"event_type": "task_complete", "confidence": 1e999}\n', "events"),
        ("run_id,tool\nr,\n", "calls"),
        ('{"steps": [], "correct": true}\n', "calls"),
        ('{"headstart_export": 1}\n', "export"),
        ('{"a": {"correct": true}}\n', None),
        ("traceId,startTime\nt,0\n", None),
        ("[1]\n", None),
        (" \n", None),
    ],
)
def test_other_files_are_recognized_too(tmp_path: Path, text: str, form: str | None) -> None:
    assert recognized(tmp_path, text) == FormMatch(form)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER},speculated\nr,.8,true,4,6,\nr,.8,true,4,6,yes\n",
        json.dumps(OUTCOME) + "\n" + json.dumps({**OUTCOME, "speculated": True}) + "\n",
    ],
)
def test_started_may_be_missing_in_the_first_line(tmp_path: Path, text: str) -> None:
    """An experiment is refused where a file is not `live`."""
    assert recognized(tmp_path, text) == FormMatch("outcomes", live=True)


def test_with_outcomes_the_invalid_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "o.jsonl"
    file.write_text('{"context": {}, "gain": 4}\n')
    with pytest.raises(UnknownFile):
        open_file(file, ReadOptions())
    assert isinstance(open_file(file, ReadOptions(), outcomes=True), OutcomeFile)
    with pytest.raises(OutcomeError, match="line 1: correct must be true or false, not None"):
        list(read_outcomes(file, ()))
    file.write_text("event_type,tenant\ntask_complete,a\n")
    assert isinstance(open_file(file, ReadOptions(), outcomes=True), EventFile)


def test_a_header_without_rows_holds_no_outcomes(tmp_path: Path) -> None:
    file = tmp_path / "o.csv"
    file.write_text(f"{HEADER}\n")
    with pytest.raises(NothingThere, match="holds no outcomes"):
        open_file(file, ReadOptions()).units()
