"""`predict evaluate` on a small file: what it prints, writes, and refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replay.recorded_runs import shop_runs, write_runs

Run = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--quick", "--jobs", "1", "--predictor", "back_off", "--predictor", "literal")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return write_runs(tmp_path / "runs.jsonl", list(shop_runs(12)))


def test_figures_report_and_json(run: Run, runs: Path, tmp_path: Path) -> None:
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", *QUICK, "--report", "r.html",
                "--cost-ratio", ".5", "--json")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["predictor"] == "back_off"
    assert set(found["baselines"]) == {"literal"}
    assert found["runs"] == 12
    assert found["calling_points"] == 36
    for name in ("name_1", "exact_1", "exact_2", "exact_3", "log_loss", "ece", "brier",
                 "covered_at_85", "guess_us", "learn_us", "state_bytes"):  # fmt: skip
        assert isinstance(found[name], int | float), name
        assert name in found["domains"]["shop"]
        assert name in found["baselines"]["literal"]
    assert set(found["net_time"]) == {"0.5"}
    assert found["latency"] == "declared"
    assert "taken for read-only" in found["assumptions"][1]
    page = (tmp_path / "r.html").read_text()
    assert "Coverage against precision" in page
    assert "http://" not in page


def test_people_get_a_table_and_the_verdict(run: Run, runs: Path) -> None:
    ended = run("predict", "evaluate", "--runs", "-", *QUICK, stdin=runs.read_text())
    assert ended.returncode == 0, ended.stderr
    assert "covered at 85 %" in ended.stdout.splitlines()[0]
    assert "literal, the best simple predictor" in ended.stderr
    assert "assumed: declared latencies" in ended.stderr


def test_a_function_of_the_users_is_evaluated(run: Run, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def guess(history):\n"
        "    used = {call.arguments.get('order_id') for call in history.calls}\n"
        "    orders = history.results.get('get_user', {}).get('orders', [])\n"
        "    return [('get_order', {'order_id': o}) for o in orders if o not in used]\n"
    )
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", "--predictor", "own:guess",
                "--quick", "--jobs", "2", "--json")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["exact_1"] == pytest.approx(2 / 3)


def test_several_executors_are_evaluated(run: Run, runs: Path) -> None:
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", "--executors", "2", "--quick",
                "--jobs", "1", "--json")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["predictor"] == "2 executors, snapshot + local"
    kinds = ("snapshot", "alone", "always fresh")
    assert set(found["baselines"]) == {f"2 executors, {kind}" for kind in kinds}
    assert "after every 25 runs" in found["assumptions"][2]


def test_runs_with_unknown_arguments_are_left_out_and_counted(run: Run, runs: Path) -> None:
    unknown = '{"steps": [{"tool": "x", "args": {}}, {"tool": "y", "args": null}]}\n'
    first = runs.read_text().splitlines(keepends=True)[0]
    runs.write_text(runs.read_text() + unknown * 2)
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", *QUICK, "--json")
    assert ended.returncode == 0, ended.stderr
    assert "refused: runs.jsonl:13: steps[1].args is null" in ended.stderr
    assert "12 runs accepted, 2 lines refused" in ended.stderr
    assert "2 of these are runs with a call whose arguments are not known" in ended.stderr
    found = json.loads(ended.stdout)
    assert (found["runs"], found["refused"], found["unknown_arguments"]) == (12, 2, 2)
    runs.write_text("".join(runs.read_text().splitlines(keepends=True)[-2:-1]) + first)
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", *QUICK, "--json")
    assert "1 run accepted, 1 line refused" in ended.stderr
    assert "1 of these is a run with" in ended.stderr
    runs.write_text(unknown)
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", *QUICK, "--json")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "steps[1].args is null" in ended.stderr


def test_thinking_that_is_not_recorded_is_reported_as_assumed(run: Run, tmp_path: Path) -> None:
    step = {"tool": "x", "args": {}, "seen_at": 1_000, "called_at": 2_000, "returned_at": 3_000}
    write_runs(tmp_path / "timed.jsonl", [{"steps": [step]}])
    ended = run("predict", "evaluate", "--runs", "timed.jsonl", *QUICK)
    assert ended.returncode == 0, ended.stderr
    message = next(line for line in ended.stderr.splitlines() if "assumed: recorded times" in line)
    assert "before each reply without a call, thinking takes the recorded median" in message


def test_wrong_lines_are_named_and_the_rest_is_evaluated(run: Run, runs: Path) -> None:
    runs.write_text(runs.read_text() + '{"steps": [{"tool": "x"}]}\n')
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", *QUICK, "--json")
    assert ended.returncode == 0
    assert "refused: runs.jsonl:13: steps[0].args is missing" in ended.stderr
    assert json.loads(ended.stdout)["refused"] == 1


@pytest.mark.parametrize(
    ("content", "options", "code", "message"),
    [
        ("{}\n", (), 1, "runs.jsonl:1: steps is missing"),
        ("", (), 1, "runs.jsonl holds no run with a call"),
        (None, ("--predictor", "best"), 1, "there is no predictor 'best'; choose headstart"),
        (None, ("--executors", "2", "--predictor", "literal"), 2, "leave --predictor out"),
        (None, ("--latency", "recorded"), 2, "not every call has called_at and returned_at"),
        (None, ("--read-only", "fly"), 1, "no run calls fly; the runs call get_order, get_user"),
        (None, ("--report", "runs.jsonl"), 1, "runs.jsonl"),
    ],
)
def test_what_cannot_be_used_is_named(
    run: Run, runs: Path, content: str | None, options: tuple[str, ...], code: int, message: str
) -> None:
    if content is not None:
        runs.write_text(content)
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", *QUICK, *options)
    assert ended.returncode == code
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("took", "options", "latency"),
    [
        (400, (), "recorded"),
        (400, ("--latency", "declared"), "declared"),
        (0, (), "declared"),
        (0, ("--latency", "recorded"), "recorded"),
    ],
)
def test_the_latencies_in_use_are_named(
    run: Run, tmp_path: Path, took: int, options: tuple[str, ...], latency: str
) -> None:
    found = list(shop_runs(12))
    for each in found:
        for place, call in enumerate(each["steps"]):
            at = 1_790_000_000_000 + 5_000 * place
            call |= {"seen_at": at - 900, "called_at": at, "returned_at": at + took}
    write_runs(tmp_path / "runs.jsonl", found)
    ended = run("predict", "evaluate", "--runs", "runs.jsonl", *QUICK, *options, "--json")
    assert ended.returncode == 0, ended.stderr
    message = json.loads(ended.stdout)
    assert message["latency"] == latency
    assert ("answer at once" in message["assumptions"][0]) is (took == 0 and not options)
    if latency == "recorded" and took:
        assert message["net_time"]["0.5"]["tool_time_saved"] > 0.3
