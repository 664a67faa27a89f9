"""A file of events may lack what `headstart emit` fills in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
from typer.testing import CliRunner

from cli.main import app
from replay.predictions.notes import Notes
from replay.sources.base import ReadOptions
from replay.sources.files import EventFile

WRITTEN_S = 1_790_000_000


def file_of(folder: Path, *events: dict[str, Any]) -> EventFile:
    file = folder / "events.jsonl"
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    os.utime(file, (WRITTEN_S, WRITTEN_S))
    return EventFile(file, ReadOptions())


def values(source: EventFile) -> list[dict[str, Any]]:
    return [
        orjson.loads(value) for batch, _ in source.batches(0, Notes()) for value in batch.values
    ]


def test_missing_fields_are_filled_in_the_same_at_each_reading(tmp_path: Path) -> None:
    own = {"id": "0" * 32, "tenant": "acme", "timestamp": 1_780_000_000_000}
    source = file_of(tmp_path, {}, own, {"id": None, "timestamp": "2026-06-01T00:00:00Z"})
    first, given, last = found = values(source)
    assert values(source) == found
    assert given == own
    assert first["timestamp"] == WRITTEN_S * 1_000
    assert last["timestamp"] == 1_780_272_000_000
    assert first["tenant"] == last["tenant"] == "default"
    assert first["id"] != last["id"]


def test_events_without_ids_are_judged(tmp_path: Path) -> None:
    event = {
        "event_type": "task_complete", "workflow_type": "refund", "workflow_id": "w",
        "confidence": 0.9, "data": {"prediction": {"was_correct": True}, "result": {"gain_ms": 5}},
    }  # fmt: skip
    source = file_of(tmp_path, *[event] * 3)
    run = CliRunner().invoke(app, ["backtest", "always", "--source", str(source.file), "--json"])
    assert run.exit_code == 0, run.output
    assert orjson.loads(run.stdout)["outcomes"] == 3


def test_where_all_are_refused_the_error_has_the_reason(tmp_path: Path) -> None:
    event = {"event_type": "task_complete", "workflow_type": "refund", "workflow_id": "w"}
    source = file_of(tmp_path, *[event | {"id": "e1"}] * 3)
    run = CliRunner().invoke(app, ["backtest", "always", "--source", str(source.file)])
    assert run.exit_code != 0
    message = run.output + str(run.exception)
    assert (
        "3 refused; the first: partition 0, offset 0: id: must have 32 to 36 characters" in message
    )
