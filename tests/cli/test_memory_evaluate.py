"""`memory evaluate` on small files: what it prints, writes, and refuses.

mem0 #5235: there was no kit to evaluate a memory with.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from memory.cases.case import Case
from memory.evaluation.columns import COLUMN_TITLES
from tests.memory.run_cases import intents
from tests.memory.stored_runs import run as run_events

Run = Callable[..., subprocess.CompletedProcess[str]]


def lines(cases: Iterable[Case]) -> str:
    found = []
    for case in cases:
        steps = [{"tool": call.tool, "args": dict(call.arguments)} for call in case.calls]
        record: dict[str, Any] = {"steps": steps, "task_id": case.task, "reward": case.reward}
        if case.query:
            record["query"] = case.query
        found.append(json.dumps(record))
    return "\n".join(found) + "\n"


def test_figures_report_and_lines_that_are_no_runs(run: Run, tmp_path: Path) -> None:
    content = lines(intents(30)) + '{"steps": [{"args": {}}]}\nno json\n'
    (tmp_path / "runs.jsonl").write_text(content)
    ended = run("memory", "evaluate", "--runs", "runs.jsonl", "--processes", "1", "--json",
                "--html", "r.html")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "refused: runs.jsonl:31: steps[0].tool" in ended.stderr
    assert "refused: runs.jsonl:32: not JSON" in ended.stderr
    found = json.loads(ended.stdout)
    page = (tmp_path / "r.html").read_text()
    assert (found["runs"], found["refused"], found["tasks"]) == (30, 2, 30)
    assert found["with_cases"]["all"] == found["answered_requests"]["all"] == 29
    for column in ("all", "new_tasks", "new_situations"):
        for name in ("random", "typical", "memento", "memrl", "q", "memory", "requests"):
            figures = found[column][name]
            assert 0 <= figures["exact"] <= 1
            assert len(figures["delta_edit_interval"]) == 2
        assert found["evidence"][column]["guesses"] > 0
        assert f"{COLUMN_TITLES[column]}</h2>" in page
    assert found["poisoning"]["memory"] == {"steered": 0, "of": 15}
    assert "Does the memory help?" in page
    assert "<strong>requests</strong>" in page
    assert "http://" not in page


def test_people_get_a_table_and_the_verdict(run: Run) -> None:
    ended = run("memory", "evaluate", "--runs", "-", "--processes", "1", stdin=lines(intents(12)))
    assert ended.returncode == 0, ended.stderr
    assert "against typical" in ended.stdout.splitlines()[0]
    assert "With all earlier runs, edit similarity against typical: requests 0." in ended.stderr
    assert "after the first call (memory) 0." in ended.stderr


def test_one_run_has_nothing_to_compare_with(run: Run) -> None:
    ended = run("memory", "evaluate", "--runs", "-", "--processes", "1", "--json",
                stdin=lines(intents(1)))  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["all"]["memory"]["edit"] is None


def test_a_missing_file_and_one_without_runs_are_named(run: Run, tmp_path: Path) -> None:
    ended = run("memory", "evaluate", "--runs", "gone.jsonl")
    assert (ended.returncode, "no such file: gone.jsonl" in ended.stderr) == (1, True)
    (tmp_path / "empty.jsonl").write_text("")
    ended = run("memory", "evaluate", "--runs", "empty.jsonl")
    assert (ended.returncode, "holds no run with a call" in ended.stderr) == (1, True)


def test_each_tenant_of_a_log_is_evaluated(run: Run, tmp_path: Path) -> None:
    sizes = {"acme": 10, "beta": 9, "tiny": 2}
    events = [
        each
        for tenant, count in sizes.items()
        for number in range(count)
        for each in run_events(tenant, f"r{number}", f"order {number % 3}")
    ]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in events))
    wanted = ("memory", "evaluate", "--source", "events.jsonl", "--processes", "1", "--json")
    ended = run(*wanted, "--html", "r.html")
    assert ended.returncode == 0, ended.stderr
    assert "tiny: 2 runs with a call, at least 8 are needed; left out" in ended.stderr
    found = json.loads(ended.stdout)
    assert [(name, own["runs"]) for name, own in found["tenants"].items()] == [
        ("acme", 10), ("beta", 9),
    ]  # fmt: skip
    assert found["too_few"] == {"tiny": 2}
    assert found["tenants"]["acme"]["tasks"] == 3, "equal queries are one task"
    assert "<summary>beta</summary>" in (tmp_path / "r.html").read_text()

    ended = run(*wanted, "--tenant", "tiny")
    assert (ended.returncode, "tiny has 2 runs with a call; at least 8" in ended.stderr) == (
        1,
        True,
    )
    ended = run(*wanted, "--tenant", "none")
    assert (ended.returncode, "of --tenant none" in ended.stderr) == (1, True)


def test_options_that_do_not_go_together(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text(lines(intents(3)))
    ended = run("memory", "evaluate", "--runs", "runs.jsonl", "--tenant", "acme")
    assert (ended.returncode, "leave out --runs" in ended.stderr) == (2, True)
    ended = run("memory", "evaluate", "--source", "runs.jsonl")
    assert (ended.returncode, "given by --runs" in ended.stderr) == (2, True)
    ended = run("memory", "evaluate", "--kafka", "127.0.0.1:1")
    assert (ended.returncode, "127.0.0.1:1" in ended.stderr) == (1, True)
