"""Imported runs, as the demo reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from demo.traces import read_runs


def readable(tmp_path: Path, runs: list[dict[str, Any]]) -> list[list[str]]:
    """The tools of each run, as the demo reads them."""
    file = tmp_path / "runs.jsonl"
    file.write_bytes(b"".join(orjson.dumps(run) + b"\n" for run in runs))
    return [[step.tool for step in run.steps] for run in read_runs(file)]
