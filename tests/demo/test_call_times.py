"""A guess is worth the recorded duration of its call; substitutes are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from demo.call_times import DECLARED, FAILED, LONGER, MEAN, WHOLE, CallTimes, recorded_ms
from demo.tool_latency import LatencyModel
from demo.trace_source import TraceHistory
from demo.traces import Step
from replay.execution.runner import Backtest, named, run_backtest
from replay.predictions.assumptions import Assumed
from replay.results.summary import report
from replay.sources.base import ReadOptions

POLICIES = named(["always", "fixed"])
MISS = "a miss wastes 1.5 times the mean recorded duration of its tool"


def times() -> CallTimes:
    return CallTimes(LatencyModel(3))


def call(tool: str, begin: int | None, took: int | None) -> Step:
    end = None if begin is None or took is None else begin + took
    return Step(tool, begin, end)


def test_a_hit_saves_what_its_call_took() -> None:
    found = times().of_guess("pay", call("pay", 1_000, 40), call("find", 0, 900))
    assert (found.latency.gain_ms, found.latency.execution_ms) == (40.0, 40.0)
    assert (found.assumed, found.gain_known) == (WHOLE, True)


def test_a_call_that_took_longer_than_it_could_be_ahead_is_reported() -> None:
    found = times().of_guess("pay", call("pay", 1_000, 400), call("find", 0, 900))
    assert (found.latency.gain_ms, found.assumed) == (400.0, LONGER)


def test_a_miss_wastes_a_multiple_of_what_its_tool_took() -> None:
    known = times()
    known.learn(call("pay", 0, 100))
    known.learn(call("pay", 0, 300))
    for actual in (call("find", 1_000, 7), None):
        found = known.of_guess("pay", actual, None)
        assert found.latency.cost_ms == pytest.approx(300.0)
        assert found.assumed == MISS


def test_a_missing_duration_is_the_tools_mean_else_declared() -> None:
    known = times()
    bare = call("pay", None, None)
    assert known.of_guess("pay", bare, None).assumed == DECLARED
    known.learn(call("pay", 0, 100))
    found = known.of_guess("pay", bare, None)
    assert (found.latency.gain_ms, found.assumed) == (100.0, MEAN)
    assert known.of_guess("find", bare, None).assumed == DECLARED


@pytest.mark.parametrize("step", [Step("a"), Step("a", 5), Step("a", None, 5), Step("a", 9, 5)])
def test_times_that_are_missing_or_clash_are_no_duration(step: Step) -> None:
    assert recorded_ms(step) is None


def runs(folder: Path, took: int | None) -> Path:
    """Return recorded runs whose calls took so long, in ms."""
    lines = []
    for number in range(120):
        at, steps = 1_790_000_000_000, []
        for tool in ("find", "order", "check" if number % 5 else "search", "refund"):
            end = None if took is None else at + took
            steps.append({"tool": tool, "called_at": took and at, "returned_at": end,
                          "error": False})  # fmt: skip
            at += (took or 0) + 20_000
        lines.append({"source": "mine", "domain": "shop", "agent_model": "m", "trial": 0,
                      "task_id": str(number), "started_at": None, "steps": steps})  # fmt: skip
    file = folder / f"{took}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def found(file: Path, assumed: Assumed | None = None) -> dict[str, Any]:
    history = TraceHistory(file, ReadOptions(assumed=assumed or Assumed()))
    units = run_backtest(Backtest(history, POLICIES), lambda _: None, processes=1)
    return report(history.name, POLICIES, units)


def test_a_backtest_of_runs_goes_by_their_durations(tmp_path: Path) -> None:
    short, long = found(runs(tmp_path, 10)), found(runs(tmp_path, 10_000))
    for result, took in ((short, 10), (long, 10_000)):
        always = result["policies"]["always"]
        assert always["saved"] == pytest.approx(took * always["hits"])
        assert always["wasted"] == pytest.approx(1.5 * took * always["misses"])
        assert {each["assumed"] for each in result["assumptions"]} == {WHOLE, MISS}
        assert sum(each["guesses"] for each in result["assumptions"]) == result["outcomes"]
        assert "Assumed for " in result["conclusion"]


def test_declared_durations_are_reported(tmp_path: Path) -> None:
    result = found(runs(tmp_path, None))
    assert result["assumptions"] == [{"assumed": DECLARED, "guesses": result["outcomes"]}]
    assert "the demo declares" in result["conclusion"]


def test_options_stand_in_for_what_is_declared_not_for_what_is_recorded(tmp_path: Path) -> None:
    given = Assumed(7.0, 3.0)
    result = found(runs(tmp_path, None), given)["policies"]["always"]
    assert (result["saved"], result["wasted"]) == (7.0 * result["hits"], 3.0 * result["misses"])
    result = found(runs(tmp_path, 10), given)["policies"]["always"]
    assert (result["saved"], result["wasted"]) == (10.0 * result["hits"], 3.0 * result["misses"])


def test_a_right_guess_of_a_call_that_failed_is_a_miss() -> None:
    known = times()
    failed = Step("pay", 1_000, 1_040, error=True)
    found = known.of_guess("pay", failed, None)
    assert (found.failed, found.gain_known) == (True, False)
    assert found.latency.cost_ms == pytest.approx(60.0)
    assert found.assumed == f"{FAILED}, and wastes 1.5 times the call's duration"
    bare = Step("pay", error=True)
    assert known.of_guess("pay", bare, None).assumed == f"{FAILED}; {DECLARED}"
    known.learn(call("pay", 0, 100))
    assert known.of_guess("pay", bare, None).latency.cost_ms == pytest.approx(150.0)
    assert not known.of_guess("find", failed, None).failed


@pytest.mark.parametrize("cost", [None, 3.0])
def test_no_policy_earns_by_calls_that_failed(tmp_path: Path, cost: float | None) -> None:
    file = runs(tmp_path, 10)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        for step in line["steps"]:
            step["error"] = step["tool"] == "refund"
    whole = found(file)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = found(file, Assumed(cost_ms=cost))
    count = sum(e["guesses"] for e in result["assumptions"] if e["assumed"].startswith(FAILED))
    assert count > 100
    assert result["outcomes"] == whole["outcomes"]
    always, before = result["policies"]["always"], whole["policies"]["always"]
    assert always["hits"] == before["hits"] - count
    assert always["saved"] == pytest.approx(before["saved"] - 10 * count)
    each = 15.0 if cost is None else cost
    assert always["wasted"] == pytest.approx(each * always["misses"])
    assert FAILED in result["conclusion"]
