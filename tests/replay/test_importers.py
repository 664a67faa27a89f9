"""Other tools' files become runs that the demo reads; what could not be mapped is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.importers.agent_runs import NotOfThisForm, Unmapped
from replay.importers.langsmith_langfuse import langfuse_runs, langsmith_runs
from replay.importers.otlp import otlp_runs
from replay.importers.tau_bench import tau_runs
from tests.replay.imported_runs import readable


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(*objects: Any, name: str = "x.json") -> Path:
        file = tmp_path / name
        file.write_bytes(b"\n".join(orjson.dumps(each) for each in objects))
        return file

    return write


def call(name: str, number: int) -> dict[str, Any]:
    return {"id": f"c{number}", "function": {"name": name, "arguments": "{}"}}


def test_tau_bench(written: Any, tmp_path: Path) -> None:
    traj = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "tool_calls": [call("get_user", 1), call("get_order", 2)]},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no such order"},
        {"role": "assistant", "tool_calls": [{"id": "c3", "function": {}}]},
    ]
    results = [{"task_id": 3, "trial": 1, "traj": traj}, {"task_id": 4}]
    file, unmapped = written(results, name="gpt-4o-airline.json"), Unmapped()
    runs = list(tau_runs(file, unmapped))
    assert readable(tmp_path, runs) == [["get_user", "get_order"]]
    assert (runs[0]["domain"], runs[0]["task_id"], runs[0]["trial"]) == ("airline", "3", 1)
    assert [step["error"] for step in runs[0]["steps"]] == [False, True]
    assert unmapped.counts == {
        "tool calls without a name": 1, "entries without traj or simulations": 1,
    }  # fmt: skip


def test_tau2_bench(written: Any, tmp_path: Path) -> None:
    at = "2025-06-01T10:00:00"
    messages = [
        {"role": "assistant", "tool_calls": [{"id": "1", "name": "find"}], "timestamp": at},
        {"role": "tool", "id": "1", "error": False, "timestamp": "2025-06-01T10:00:01"},
        {"role": "user", "tool_calls": [{"id": "2", "name": "reboot"}]},
    ]
    info = {"environment_info": {"domain_name": "telecom"}, "agent_info": {"llm": "m"}}
    results = {"info": info, "simulations": [{"task_id": "t", "trial": 0, "messages": messages}]}
    unmapped = Unmapped()
    runs = list(tau_runs(written(results), unmapped))
    assert readable(tmp_path, runs) == [["find"]]
    step = runs[0]["steps"][0]
    assert step["returned_at"] - step["called_at"] == 1000
    assert unmapped.counts == {"tool calls of the simulated user": 1}


AT = 1_790_000_000_000


def test_otlp(written: Any, tmp_path: Path) -> None:
    def span(name: str, start: int, **values: str) -> dict[str, Any]:
        pairs = [
            {"key": k.replace("__", "."), "value": {"stringValue": v}} for k, v in values.items()
        ]
        return {"traceId": "t1", "name": name, "startTimeUnixNano": str((AT + start) * 10**6),
                "endTimeUnixNano": str((AT + start + 5) * 10**6), "attributes": pairs,
                "status": {"code": 2}}  # fmt: skip

    spans = [
        {**span("execute_tool later", 200), "endTimeUnixNano": "0"},
        span("x", 100, gen_ai__operation__name="execute_tool", gen_ai__tool__name="first"),
        span("chat", 50, gen_ai__request__model="m"),
        span("execute_tool", 60),
    ]
    service = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    unmapped = Unmapped()
    file = written({"resourceSpans": [{"resource": service, "scopeSpans": [{"spans": spans}]}]})
    (run,) = otlp_runs(file, unmapped)
    assert readable(tmp_path, [run]) == [["first", "later"]]
    assert (run["domain"], run["agent_model"]) == ("shop", "m")
    times = run["steps"][0]["called_at"], run["steps"][0]["returned_at"]
    assert (*times, run["steps"][0]["error"]) == (AT + 100, AT + 105, True)
    assert run["steps"][1]["returned_at"] is None
    assert run["started_at"] == AT + 100
    assert unmapped.counts == {
        "spans that execute no tool": 1, "tool spans without gen_ai.tool.name": 1,
    }  # fmt: skip


def test_langsmith_and_langfuse(written: Any, tmp_path: Path) -> None:
    smith = [
        {"id": "2", "trace_id": "t", "run_type": "tool", "name": "b", "start_time": "2025-01-02"},
        {"id": "1", "trace_id": "t", "run_type": "tool", "name": "a", "error": "no",
         "start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-01T00:00:02Z"},
        {"id": "0", "trace_id": "t", "run_type": "llm", "session_name": "shop"},
        {"id": "3", "trace_id": "t", "run_type": "tool", "name": "c"},
    ]  # fmt: skip
    unmapped = Unmapped()
    runs = list(langsmith_runs(written(*smith), unmapped))
    assert readable(tmp_path, runs) == [["a", "b"]]
    assert runs[0]["domain"] == "shop"
    assert unmapped.counts == {"runs of type llm": 1, "tool calls without a start time": 1}
    fuse = [
        {"traceId": "t", "type": "TOOL", "name": "a", "startTime": 1.7e9, "level": "ERROR"},
        {"id": "u", "observations": [{"type": "TOOL", "name": "b", "startTime": 1.7e12},
                                     {"type": "GENERATION", "model": "m"}]},
    ]  # fmt: skip
    unmapped = Unmapped()
    runs = list(langfuse_runs(written(*fuse), unmapped))
    assert readable(tmp_path, runs) == [["a"], ["b"]]
    assert runs[0]["steps"][0]["called_at"] == runs[1]["steps"][0]["called_at"]
    assert unmapped.counts == {"observations of type GENERATION": 1}


@pytest.mark.parametrize("read", [tau_runs, otlp_runs, langsmith_runs, langfuse_runs])
def test_a_file_of_another_form_is_refused(read: Any, written: Any) -> None:
    with pytest.raises(NotOfThisForm, match=r"x\.json: no "):
        list(read(written({"a": 1}, [2]), Unmapped()))
