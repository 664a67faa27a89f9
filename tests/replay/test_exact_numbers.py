"""A level that is a number names the same context from a file as in an event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.files.json_lines import json_lines
from replay.importers.documents import documents
from replay.predictions.notes import Notes
from replay.predictions.outcomes_file import read_outcomes
from replay.sources.base import ReadOptions
from replay.sources.files import EventFile

LARGE = 2**70


def written(folder: Path, text: str) -> Path:
    file = folder / "file"
    file.write_text(text)
    return file


def test_of_an_outcome(tmp_path: Path) -> None:
    context = {"workflow_type": "refund", "domain": LARGE}
    line = json.dumps({"context": context, "confidence": 0.9, "correct": True})
    (judged,) = read_outcomes(written(tmp_path, line), ("domain",))
    assert judged.paths[-1] == f"workflow_type=refund/domain={LARGE}"


def test_of_an_event_that_is_completed(tmp_path: Path) -> None:
    event = {"event_type": "task_complete", "data": {"context": {"domain": LARGE, "city": "Köln"}}}
    source = EventFile(written(tmp_path, json.dumps(event)), ReadOptions())
    ((batch, _),) = source.batches(0, Notes())
    (value,) = batch.values
    assert value is not None
    assert json.loads(value)["data"] == event["data"]


@pytest.mark.parametrize(
    ("cell", "value"),
    [(str(LARGE), str(LARGE)), ("1.10", "1.10"), ("1e3", "1e3"), ("007", "007"), ("5", 5),
     ("1.5", 1.5), ("true", True), ("retail", "retail")],
)  # fmt: skip
def test_of_a_cell(tmp_path: Path, cell: str, value: Any) -> None:
    file = written(tmp_path, f"event_type,data.context.domain\ntask_complete,{cell}\n")
    with json_lines(file) as lines:
        ((_, line),) = lines
    assert json.loads(line)["data"] == {"context": {"domain": value}}


def test_of_an_object_in_a_cell(tmp_path: Path) -> None:
    context = json.dumps({"domain": LARGE}).replace('"', '""')
    file = written(tmp_path, f'event_type,data.context\ntask_complete,"{context}"\n')
    with json_lines(file) as lines:
        ((_, line),) = lines
    assert json.loads(line)["data"] == {"context": {"domain": LARGE}}


def test_of_another_tool(tmp_path: Path) -> None:
    ((_, document),) = documents(written(tmp_path, json.dumps({"user_id": LARGE})))
    assert document == {"user_id": LARGE}
