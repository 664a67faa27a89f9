"""`headstart import`: its messages and files, and that a backtest reads its output."""

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
    assert "not mapped: 24 extra that are not objects (the first: x.jsonl, line 2)" in ended.stderr
    found = json.loads(ended.stdout)
    assert (found["runs"], found["calls"]) == (8, 24)
    assert found["unmapped"]["entries that are not JSON objects"] == 1
    given = ("backtest", "--source", "runs.jsonl", "fixed", "--processes", "1", "--json")
    every, later = run(*given), run(*given, "--since", "2025-01-01")
    assert "have no time" not in later.stderr
    counts = [json.loads(ended.stdout)["outcomes"] for ended in (every, later)]
    assert 0 < counts[1] < counts[0]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ("other.jsonl", "entries without run_type (other.jsonl, line 1)"),
        ("none.jsonl", "none.jsonl"),
    ],
)
def test_an_error_changes_no_file(run: Run, tmp_path: Path, second: str, why: str) -> None:
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


def test_standard_input_and_output_by_a_pipe(run: Run, tmp_path: Path) -> None:
    text = "".join(json.dumps(tool("t", n, "2025-06-01")) + "\n" for n in range(3))
    ended = run("import", "langsmith", "-", "--out", "-", stdin=text)
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()
    assert [step["tool"] for step in json.loads(line)["steps"]] == ["tool-0", "tool-1", "tool-2"]
    assert "1 runs with 3 tool calls in standard output" in ended.stderr
    again = run("import", "runs", "-", "--out", "-", stdin=ended.stdout)
    assert (again.returncode, again.stdout) == (0, ended.stdout)
    assert list(tmp_path.iterdir()) == []


def test_duplicates_are_reported(run: Run, tmp_path: Path) -> None:
    entry = {**tool("t", 1, "2025-06-01"), "id": "r1"}
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps(entry) + "\n")
    ended = run("import", "langsmith", "a.jsonl", "b.jsonl", "--out", "runs.jsonl", "--json")
    assert json.loads(ended.stdout)["duplicates"] == 1
    assert json.loads(ended.stdout)["calls"] == 1
    assert "dropped: 1 duplicates of tool runs (the same id again)" in ended.stderr


def test_nothing_found_names_what_was_there(run: Run, tmp_path: Path) -> None:
    spans = [{"traceId": "a", "spanId": str(n), "name": "llm"} for n in range(3)]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "x.json").write_text(json.dumps(document))
    (tmp_path / "runs.jsonl").write_text("precious")
    ended = run("import", "otlp", "x.json", "--out", "runs.jsonl")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "3 spans that execute no tool" in ended.stderr.splitlines()[-1]
    assert (tmp_path / "runs.jsonl").read_text() == "precious"


def test_old_langfuse_spans_are_calls_with_the_spans_option(run: Run, tmp_path: Path) -> None:
    entry = {"id": "o", "traceId": "t", "type": "SPAN", "name": "a", "startTime": "2025-06-01"}
    (tmp_path / "x.jsonl").write_text(json.dumps(entry) + "\n")
    ended = run("import", "langfuse", "x.jsonl", "--out", "-")
    assert ended.returncode == 1
    assert "--spans" in ended.stderr
    assert run("import", "langfuse", "x.jsonl", "--out", "-", "--spans").returncode == 0
    assert run("import", "otlp", "x.jsonl", "--out", "-", "--spans").returncode == 2


def step(tool: str, **more: Any) -> dict[str, Any]:
    return {"tool": tool, "called_at": None, "returned_at": None, "error": False, **more}


def agent_run(*steps: dict[str, Any], **more: Any) -> str:
    made = {"source": "x", "domain": "d", "agent_model": "m", "task_id": "1", "steps": steps}
    return json.dumps({**made, **more}) + "\n"


def test_runs_that_are_refused_are_named_by_file_line_and_reason(run: Run, tmp_path: Path) -> None:
    bad = agent_run({"tool": "a"}, {"tool": "b"})
    (tmp_path / "none.jsonl").write_text(bad + "no\n")
    ended = run("backtest", "--source", "none.jsonl", "hops")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "all 2 lines were refused; the first: none.jsonl:1: steps[0].error is missing" in line
    good = [agent_run(*map(step, "abab"), task_id=str(number)) for number in range(9)]
    (tmp_path / "some.jsonl").write_text("".join(["no\n", *good, bad]))
    ended = run("backtest", "--source", "some.jsonl", "fixed", "--processes", "1")
    assert ended.returncode == 0, ended.stderr
    assert "some.jsonl: 9 runs accepted, 2 lines refused" in ended.stderr
    assert "skipped: some.jsonl:1: not JSON" in ended.stderr
    ended = run("import", "runs", "some.jsonl", "--out", "-")
    assert len(ended.stdout.splitlines()) == 9
    assert "lines refused: steps[0].error is missing (the first: some.jsonl:11)" in ended.stderr
    ended = run("demo", "--traces", "none.jsonl")
    assert ended.returncode == 1
    assert "all 2 lines were refused" in ended.stderr


def test_times_in_another_unit_leave_the_output_unchanged(run: Run, tmp_path: Path) -> None:
    span = {"traceId": "aa", "spanId": "bb", "name": "execute_tool find"}
    span |= {"startTimeUnixNano": "1790000000000000", "endTimeUnixNano": "1790000001000000"}
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    (tmp_path / "x.json").write_text(json.dumps(spans))
    (tmp_path / "runs.jsonl").write_text("before")
    ended = run("import", "otlp", "x.json", "--out", "runs.jsonl")
    assert ended.returncode == 1
    assert "1 start times of tool spans that read as microseconds" in ended.stderr
    assert (tmp_path / "runs.jsonl").read_text() == "before"


def test_an_export_without_calls_lists_what_was_found(run: Run, tmp_path: Path) -> None:
    attribute = {"key": "openinference.span.kind", "value": {"stringValue": "LLM"}}
    span = {"traceId": "5b8efff798038103d269b633813fc60c", "name": "chat"}
    spans = [{**span, "attributes": [attribute]}, {**span, "attributes": [attribute]}, span]
    export = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "x.json").write_text(json.dumps(export))
    ended = run("import", "otlp", "x.json", "--out", "runs.jsonl")
    assert ended.returncode == 1
    assert "3 spans that execute no tool; by kind: llm 2, no kind 1; looked for " in ended.stderr
    assert not (tmp_path / "runs.jsonl").exists()
