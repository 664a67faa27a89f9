"""`headstart import`: what it says and leaves behind, and that a backtest reads what it made."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def tool(trace: str, number: int, day: str) -> dict[str, Any]:
    return {"trace_id": trace, "run_type": "tool", "name": f"tool-{number}", "extra": "text",
            "start_time": f"{day}T00:00:0{number}Z", "session_name": "shop"}  # fmt: skip


def test_runs_that_a_backtest_finds_by_time(run: Run, tmp_path: Path) -> None:
    entries: list[Any] = [5]
    for trace in range(8):
        day = "2025-06-01" if trace % 2 else "2024-06-01"
        entries += [tool(f"t{trace}", number, day) for number in range(3)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(each) + "\n" for each in entries))
    ended = run("import", "langsmith", "x.jsonl", "--out", "runs.jsonl", "--json")
    assert ended.returncode == 0, ended.stderr
    assert "not mapped: 24 extra that are no objects (the first: x.jsonl, line 2)" in ended.stderr
    found = json.loads(ended.stdout)
    assert (found["runs"], found["calls"]) == (8, 24)
    assert found["unmapped"]["entries that are no JSON objects"] == 1
    given = ("backtest", "--source", "runs.jsonl", "fixed", "--processes", "1", "--json")
    every, later = run(*given), run(*given, "--since", "2025-01-01")
    assert "say no time" not in later.stderr
    counts = [json.loads(ended.stdout)["outcomes"] for ended in (every, later)]
    assert 0 < counts[1] < counts[0]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ("other.jsonl", "entries without run_type (other.jsonl, line 1)"),
        ("none.jsonl", "none.jsonl"),
    ],
)
def test_an_error_leaves_everything_as_it_was(
    run: Run, tmp_path: Path, second: str, why: str
) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps(tool("t", 1, "2025-06-01")) + '\n{"a": 0}\n')
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "runs.jsonl").write_text("before\n")
    before = set(tmp_path.iterdir())
    ended = run("import", "langsmith", "x.jsonl", second, "--out", "runs.jsonl")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert why in line
    assert set(tmp_path.iterdir()) == before
    assert (tmp_path / "runs.jsonl").read_text() == "before\n"
