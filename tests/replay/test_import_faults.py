"""Files of other tools with something wrong in them: it is counted, and the rest is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demo.traces import read_runs
from replay.importers.agent_runs import NotOfThisForm, Run, Unmapped, iso_ms, objects
from replay.importers.langsmith_langfuse import langfuse_runs, langsmith_runs
from replay.importers.otlp import otlp_runs
from replay.importers.tau_bench import tau_runs

Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Sample:
    """A valid file, an entry a line; `homes`: where each run's own values are."""

    read: Callable[[Path, Unmapped], Iterator[Run]]
    entries: list[Any]
    homes: dict[str, Path_]


def _messages(tool: str) -> list[Any]:
    at = "2025-06-01T10:00:00Z"
    call = {"id": "1", "function": {"name": tool, "arguments": "{}"}}
    return [
        {"role": "assistant", "tool_calls": [call], "timestamp": at},
        {"role": "tool", "tool_call_id": "1", "content": "Error", "timestamp": at},
        {"role": "user", "tool_calls": [{"id": "2", "name": "reboot"}]},
    ]


def _span(trace: str) -> dict[str, Any]:
    values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find"}
    return {
        "traceId": trace, "name": "execute_tool find", "startTimeUnixNano": "1750000000000000000",
        "endTimeUnixNano": "1750000001000000000", "status": {"code": 2},
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in values.items()],
    }  # fmt: skip


def _resource_spans(*traces: str) -> dict[str, Any]:
    name = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    scopes = [{"spans": [_span(trace)]} for trace in traces]
    return {"resourceSpans": [{"resource": name, "scopeSpans": scopes}]}


def _smith(trace: str) -> dict[str, Any]:
    return {
        "id": f"{trace}-1", "trace_id": trace, "run_type": "tool", "name": "find", "error": None,
        "start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-01T00:00:02Z",
        "session_name": "shop", "extra": {"metadata": {"ls_model_name": "m"}},
    }  # fmt: skip


def _fuse(trace: str) -> dict[str, Any]:
    return {"traceId": trace, "type": "TOOL", "name": "find", "startTime": "2025-01-01T00:00:00Z",
            "endTime": "2025-01-01T00:00:01Z", "level": "ERROR", "projectId": "p"}  # fmt: skip


def _fuse_exported(trace: str) -> dict[str, Any]:
    return {
        "trace_id": trace, "type": "TOOL", "name": "find", "level": "DEFAULT", "project_id": "p",
        "start_time": "2024-05-29 13:43:05.123000", "end_time": "2024-05-29 13:43:06.123000",
        "provided_model_name": "m",
    }  # fmt: skip


def _tau2(*tasks: str) -> dict[str, Any]:
    info = {"environment_info": {"domain_name": "telecom"}, "agent_info": {"llm": "m"}}
    simulations = [{"task_id": t, "trial": 0, "messages": _messages("find")} for t in tasks]
    return {"info": info, "simulations": simulations}


SCOPES = ("resourceSpans", 0, "scopeSpans")
SAMPLES = {
    "tau": Sample(
        tau_runs,
        [{"task_id": t, "trial": 1, "traj": _messages("find")} for t in ("run-a", "run-b")],
        {"run-a": (0,), "run-b": (1,)},
    ),
    "tau2": Sample(
        tau_runs,
        [_tau2("run-a", "run-b"), _tau2("run-c")],
        {
            "run-a": (0, "simulations", 0),
            "run-b": (0, "simulations", 1),
            "run-c": (1, "simulations", 0),
        },
    ),
    "otlp": Sample(
        otlp_runs,
        [_resource_spans("run-a", "run-b"), _resource_spans("run-c")],
        {"run-a": (0, *SCOPES, 0), "run-b": (0, *SCOPES, 1), "run-c": (1, *SCOPES, 0)},
    ),
    "langsmith": Sample(
        langsmith_runs, [_smith("run-a"), _smith("run-b")], {"run-a": (0,), "run-b": (1,)}
    ),
    "langfuse": Sample(
        langfuse_runs,
        [_fuse("run-a"), _fuse_exported("run-b"), {"id": "run-c", "observations": [
            {"type": "TOOL", "name": "find", "startTime": 1.7e12}]}],
        {"run-a": (0,), "run-b": (1,), "run-c": (2,)},
    ),
}  # fmt: skip
OTHER = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=9),
    st.floats(allow_nan=False, allow_infinity=False), st.just("9" * 40), st.just([]), st.just({}),
    st.lists(st.none() | st.integers(0, 3) | st.text(max_size=3), max_size=3),
)  # fmt: skip


def places(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Every value's path, except the file's own."""
    items: Any = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, each in items:
        yield (*at, key)
        yield from places(each, (*at, key))


def calls(run: Run) -> tuple[str, Any, Any]:
    """What is a run's own; domain and model may be set above it, for many."""
    return run["task_id"], run["started_at"], run["steps"]


def lines(file: Path, *entries: Any) -> Path:
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in entries))
    return file


def is_on_the_way(one: Path_, other: Path_) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


@pytest.mark.parametrize("name", SAMPLES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_wrong_value_costs_no_other_run(name: str, data: st.DataObject, tmp_path: Path) -> None:
    sample, file = SAMPLES[name], tmp_path / "x.jsonl"
    whole = {r["task_id"]: calls(r) for r in sample.read(lines(file, *sample.entries), Unmapped())}
    assert set(whole) == set(sample.homes)
    place = data.draw(st.sampled_from(list(places(sample.entries))))
    entries: Any = deepcopy(sample.entries)
    within = entries
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = data.draw(OTHER)
    as_array = data.draw(st.booleans())
    lines(file, *([entries] if as_array else entries))
    others = [run for task, run in whole.items() if not is_on_the_way(sample.homes[task], place)]
    try:
        runs = list(sample.read(file, Unmapped()))
    except NotOfThisForm:
        assert not others
        return
    assert [run for run in map(calls, runs) if run in others] == others
    lines(tmp_path / "runs.jsonl", *runs)
    assert len(list(read_runs(tmp_path / "runs.jsonl"))) == len(runs)


CASES = [
    ("tau", (0, "traj", 0, "tool_calls", 0), "x", "tool calls that are not objects"),
    ("tau", (0, "traj", 0, "tool_calls"), "x", "tool_calls that are not lists"),
    ("tau", (0, "traj", 0, "tool_calls", 0, "function"), "x",
     "function of tool calls that are not objects"),
    ("tau2", (0, "info"), [], "info that are not objects"),
    ("tau2", (0, "info", "agent_info"), "x", "agent_info that are not objects"),
    ("tau2", (0, "info", "environment_info"), "x", "environment_info that are not objects"),
    ("tau2", (0, "simulations", 0), "x", "simulations that are not objects"),
    ("otlp", (0, "resourceSpans"), "x", "resourceSpans that are not lists"),
    ("otlp", (0, *SCOPES, 0, "spans", 0), "x", "spans that are not objects"),
    ("otlp", (0, *SCOPES, 0, "spans", 0, "attributes"), 5,
     "lists of attributes that are not lists"),
    ("otlp", (0, *SCOPES, 0, "spans", 0, "attributes", 0), 5, "attributes that are not objects"),
    ("langsmith", (0, "extra"), "x", "extra that are not objects"),
    ("langsmith", (0, "extra", "metadata"), [1], "extra.metadata that are not objects"),
    ("langsmith", (0,), "x", "entries that are not JSON objects"),
    ("langfuse", (2, "observations"), 5, "lists of observations that are not lists"),
    ("langfuse", (2, "observations", 0), 5, "observations that are not objects"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "value", "reason"), CASES)
def test_values_of_another_type_are_counted_by_name(
    name: str, place: Path_, value: Any, reason: str, tmp_path: Path
) -> None:
    sample, unmapped = SAMPLES[name], Unmapped()
    entries: Any = deepcopy(sample.entries)
    within = entries
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    runs = list(sample.read(lines(tmp_path / "x.jsonl", *entries), unmapped))
    assert runs
    assert unmapped.counts[reason] == 1
    assert unmapped.first[reason] == f"{tmp_path / 'x.jsonl'}, line {int(place[0]) + 1}"


def test_langfuse_in_the_spelling_of_its_export(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", _fuse_exported("t"), {**_fuse_exported("t"), "type": "tool"})
    (run,) = langfuse_runs(file, Unmapped())
    assert (run["domain"], run["agent_model"], len(run["steps"])) == ("p", "m", 2)
    assert run["started_at"] == iso_ms("2024-05-29T13:43:05.123Z") == 1_716_990_185_123
    assert run["steps"][0]["returned_at"] == 1_716_990_186_123


@pytest.mark.parametrize(
    ("text", "found", "where"),
    [
        ('{"a": 1}\n\n{"a": 2}\n', 2, ["line 1", "line 3"]),
        ('{"a": 1,\nno\n{"a": 2}\n', 1, ["line 3"]),
        ('[{"a": 1},\n{"a": 2}]', 2, ["entry 1", "entry 2"]),
        ('[{"a": 1}, {"a": 2}]', 2, ["line 1, entry 1", "line 1, entry 2"]),
        ('{\n"a": 1\n}\n', 1, [""]),
        ("", 0, []),
    ],
)
def test_lines_and_documents(tmp_path: Path, text: str, found: int, where: list[str]) -> None:
    file, unmapped = tmp_path / "x", Unmapped()
    file.write_text(text)
    at = [unmapped.place for _ in objects(file, unmapped)]
    assert len(at) == found
    assert at == [f"{file}, {place}" if place else str(file) for place in where]


def test_a_refused_file_is_reported_with_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"a": 1}\nno\n')
    with pytest.raises(NotOfThisForm) as refused:
        list(langsmith_runs(file, Unmapped()))
    assert str(refused.value) == (
        f"{file}: no LangSmith export: nothing in it has a run_type; found: "
        f"entries without run_type ({file}, line 1), lines that are not JSON ({file}, line 2)"
    )
