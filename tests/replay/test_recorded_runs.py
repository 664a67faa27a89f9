"""The form of recorded runs: what is accepted, and what is refused with which reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from replay.evaluation.decision_points import AgentMessage, ModelAnswer, UserMessage, events_of
from replay.evaluation.recorded_run import ONE_DOMAIN, InvalidRun, RecordedCall, run_of_record
from replay.evaluation.runs_file import NoRuns, read_recorded_runs
from tests.replay.recorded_runs import shop_runs, step, write_runs


def shown(record: dict[str, Any]) -> list[object]:
    """Events in short: texts, lists of tools, and results."""
    found: list[object] = []
    for event in events_of(run_of_record(record)):
        if isinstance(event, ModelAnswer):
            found.append([each.tool for each in event.steps])
        elif isinstance(event, UserMessage):
            found.append(f"user: {event.text}")
        elif isinstance(event, AgentMessage):
            found.append(f"agent: {event.text}")
        else:
            found.append(event.result)
    return found


def test_tool_and_arguments_are_enough() -> None:
    run = run_of_record({"steps": [{"tool": "a", "args": {}}, {"tool": "b", "args": {"x": 1}}]})
    assert run.domain == ONE_DOMAIN
    assert shown({"steps": [{"tool": "a", "args": {}}, {"tool": "b", "args": {}}]}) == [
        ["a"], None, ["b"], None, [],
    ]  # fmt: skip


def test_calls_of_one_turn_are_one_decision_unless_the_user_spoke_between() -> None:
    steps = [step("a", {}, 1, turn=4), step("b", {}, 2, turn=4),
             step("c", {}, 3, turn=4, user_before=["go on"])]  # fmt: skip
    assert shown({"steps": steps}) == [["a", "b"], 1, 2, [], "user: go on", ["c"], 3, []]


def test_a_message_with_a_call_is_shown_after_the_decision() -> None:
    steps = [
        step("a", {}, "r", user_before=["one", "two"], said_before=["hello", "yes?", "I call a"])
    ]
    run = {"steps": steps, "user_after": ["x", "y"], "said_after": ["done", "sure", "later"]}
    assert shown(run) == [
        "agent: hello", "user: one", [], "agent: yes?", "user: two", ["a"], "agent: I call a", "r",
        [], "agent: done", "user: x", [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"args": '{"x": 1}'}, {"x": 1}),
        ({"arguments": {"x": 1}}, {"x": 1}),
        ({"args": ""}, {}),
    ],
)
def test_arguments_may_be_text_or_named_otherwise(given: dict[str, Any], read: object) -> None:
    assert run_of_record({"steps": [{"tool": "a", **given}]}).steps[0].arguments == read


@pytest.mark.parametrize(
    ("result", "read"),
    [('{"a": [1]}', {"a": [1]}), (" [1, 2]", [1, 2]), ("[cut", "[cut"), ("12", "12"), (None, None)],
)
def test_a_result_that_is_json_of_an_object_or_list_is_parsed(result: object, read: object) -> None:
    (call,) = run_of_record({"steps": [step("a", {}, result)]}).steps
    assert isinstance(call, RecordedCall)
    assert call.result == read


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([1], "a run must be an object, not a list"),
        ({}, "steps is missing"),
        ({"steps": {}}, "steps must be a list, not an object"),
        ({"steps": ["a"]}, r"steps\[0\] must be an object, not a text"),
        (
            {"steps": [step("a", {}, 1, called_at=1_790_000_000)]},
            r"steps\[0\].called_at: 1790000000 reads as seconds; give Unix milliseconds",
        ),
        (
            {"steps": [step("a", {}, 1, seen_at=float("inf"))]},
            r"steps\[0\].seen_at must be Unix ms",
        ),
        (
            {"steps": [{"tool": "a", "args": None}]},
            r"steps\[0\].args is null: its arguments are not",
        ),
        (
            {"steps": [{"tool": "a", "args": "null"}]},
            r"steps\[0\].args is null: its arguments are not",
        ),
        ({"steps": [{"args": {}}]}, r"steps\[0\].tool must be a text that is not empty, not null"),
        ({"steps": [{"tool": "a"}]}, r"steps\[0\].args is missing: give .* \{\} for none"),
        ({"steps": [{"tool": "a", "args": [1]}]}, r"steps\[0\].args must be an object, not a list"),
        ({"steps": [{"tool": "a", "args": "{"}]}, r"steps\[0\].args is a text, but not of JSON"),
        ({"steps": [step("a", {}, turn="x")]}, r"steps\[0\].turn must be an integer"),
        ({"steps": [step("a", {}, error=3)]}, r"steps\[0\].error must be true or false"),
        ({"steps": [step("a", {}, user_before=[1])]}, r"user_before must be a list of texts"),
        ({"steps": [step("a", {}, said_before=["a", "b"])]}, "said_before has 2 entries"),
        ({"steps": [step("a", {}, called_at="noon")]}, r"steps\[0\].called_at must be Unix ms"),
        ({"steps": [], "domain": ["x"]}, "domain must be a text, not a list"),
    ],
)
def test_errors_are_named(record: object, reason: str) -> None:
    with pytest.raises(InvalidRun, match=reason):
        run_of_record(record)


def test_a_wrong_line_is_named_and_costs_nothing_else(tmp_path: Path) -> None:
    first, second = shop_runs(2)
    file = tmp_path / "runs.jsonl"
    file.write_text(f"{json.dumps(first)}\n{{broken\n\n{{}}\n{json.dumps(second)}\n")
    found = read_recorded_runs(file)
    assert len(found.runs) == 2
    assert found.refused == [
        f"{file}:2: not JSON",
        f"{file}:4: steps is missing: give the list of the run's calls",
    ]


def test_a_file_may_be_packed_or_one_array(tmp_path: Path) -> None:
    runs = list(shop_runs(3))
    packed = tmp_path / "runs.jsonl"
    packed.write_bytes(gzip.compress("".join(json.dumps(run) + "\n" for run in runs).encode()))
    array = tmp_path / "runs.json"
    array.write_text(json.dumps(runs, indent=1))
    assert read_recorded_runs(packed).runs == read_recorded_runs(array).runs
    assert read_recorded_runs(packed).calls == 9


def test_a_file_without_a_run_has_a_reason(tmp_path: Path) -> None:
    file = write_runs(tmp_path / "runs.jsonl", [{"steps": [{"tool": "a", "error": False}]}])
    with pytest.raises(NoRuns, match=r"1 line was refused: .*:1: steps\[0\].args is missing"):
        read_recorded_runs(file)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"steps": [{"tool": "x", "args": {"a": 1, "a": 2}}]}', "steps[0].args gives the key 'a'"),
        ('{"steps": [{"tool": "x", "args": {"b": [{"a": 1, "a": 1}]}}]}', "the key 'a' twice"),
        ('{"steps": [{"tool": "x", "args": "{\\"a\\": 1, \\"a\\": 2}"}]}', "the key 'a' twice"),
        ('{"steps": [{"tool": "x", "args": {}, "args": {}}]}', "steps[0] gives the key 'args'"),
        ('{"steps": [], "steps": []}', "the run gives the key 'steps' twice"),
    ],
)
@pytest.mark.parametrize("form", ["{}\n{}\n", "{} {}\n", "[\n{},\n{}\n]\n"])
def test_a_key_that_is_given_twice_is_refused(
    line: str, reason: str, form: str, tmp_path: Path
) -> None:
    good = '{"steps": [{"tool": "x", "args": {"a": 1}, "result": {"r": 1, "r": 2}}]}'
    file = tmp_path / "runs.jsonl"
    file.write_text(form.format(good, line))
    found = read_recorded_runs(file)
    (run,) = found.runs
    assert run.steps[0].result == {"r": 2}
    (refused,) = found.refused
    assert reason in refused
