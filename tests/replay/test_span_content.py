"""Arguments, results, turns and messages of runs from exports of real instrumentations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from demo.checked import checked_runs
from replay.importers.agent_runs import Run, Unmapped
from replay.importers.langsmith_langfuse import langfuse_runs, langsmith_runs
from replay.importers.otlp import otlp_runs

EXPORTS = Path(__file__).parent / "data" / "otlp"
AT = "2026-03-01T10:00:0"
WITH_MESSAGES = {
    "langgraph-openinference",
    "langgraph-openllmetry",
    "pydantic-2",
    "pydantic-default",
}


def exported(name: str) -> Run:
    (run,) = otlp_runs(EXPORTS / f"{name}.jsonl", Unmapped())
    return run


def each(run: Run, *names: str) -> list[Any]:
    return [tuple(step[name] for name in names) for step in run["steps"]]


@pytest.mark.parametrize("file", sorted(EXPORTS.glob("*.jsonl")), ids=lambda file: file.stem)
def test_every_instrumentation_gives_the_same_calls(file: Path) -> None:
    run = exported(file.stem)
    assert each(run, "tool", "args", "error") == [
        ("search", {"query": "a"}, False),
        ("search", {"query": "b"}, False),
        ("broken", {"order": "7"}, True),
    ]
    assert [step["result"] for step in run["steps"]][:2] == ["found a", "found b"]
    error_result = run["steps"][2]["result"]
    assert error_result in (
        "no such order",
        "An error occurred while running the tool. Please try again.",
    )


@pytest.mark.parametrize("file", sorted(EXPORTS.glob("*.jsonl")), ids=lambda file: file.stem)
def test_parallel_calls_have_one_turn(file: Path) -> None:
    run = exported(file.stem)
    # The official LangChain instrumentation has no span of a model, and its calls do not overlap.
    expected = [0, 1, 2] if file.stem == "langgraph-genai" else [0, 0, 1]
    assert [step["turn"] for step in run["steps"]] == expected
    if file.stem in WITH_MESSAGES:
        assert [step["user_before"] for step in run["steps"]] == [["hi"], [], []]
        assert run["steps"][0]["seen_at"] < run["steps"][0]["called_at"]


def otlp(folder: Path, *spans: dict[str, Any]) -> tuple[list[Run], Unmapped]:
    """Import spans, each {name, at, attributes}, a second long and in one trace."""
    made = [
        {
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": f"eee19b7ec3c1b1{n:02x}",
            "name": span.get("name", "x"), "parentSpanId": span.get("parent", ""),
            "startTimeUnixNano": str((1_790_000_000 + span["at"]) * 10**9),
            "endTimeUnixNano": str((1_790_000_001 + span["at"]) * 10**9),
            "attributes": [
                {"key": key, "value": {"stringValue": v if isinstance(v, str) else json.dumps(v)}}
                for key, v in span["attributes"].items()
            ],
        }
        for n, span in enumerate(spans)
    ]  # fmt: skip
    file, unmapped = folder / "x.json", Unmapped()
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}))
    return list(otlp_runs(file, unmapped)), unmapped


GEN_AI = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
LITERAL = "{'q': None, 'n': [1]}"
TOOL_MESSAGE = {"content": '{"a": 1}', "type": "tool", "tool_call_id": "c9", "status": "error"}


@pytest.mark.parametrize(
    ("fields", "arguments", "result"),
    [
        ({**GEN_AI, "gen_ai.tool.call.arguments": {"q": 1}, "gen_ai.tool.call.result": [1]},
         {"q": 1}, [1]),
        ({**GEN_AI, "tool_arguments": {"q": 1}, "tool_response": "text"}, {"q": 1}, "text"),
        ({**GEN_AI, "gcp.vertex.agent.tool_call_args": {"q": 1},
          "gcp.vertex.agent.tool_response": {"result": 2}}, {"q": 1}, {"result": 2}),
        ({"operation.name": "ai.toolCall", "ai.toolCall.name": "t", "ai.toolCall.args": {"q": 1},
          "ai.toolCall.result": {"r": 1}}, {"q": 1}, {"r": 1}),
        ({"traceloop.span.kind": "tool", "traceloop.entity.name": "t",
          "traceloop.entity.input": {"input_str": LITERAL, "tags": []}},
         {"q": None, "n": [1]}, None),
        ({"langsmith.span.kind": "tool", "gen_ai.tool.name": "t",
          "gen_ai.prompt": {"input": LITERAL}, "gen_ai.completion": {"output": "x"}},
         {"q": None, "n": [1]}, "x"),
        # An argument may have the wrapper's name, and a result its shape.
        ({**GEN_AI, "gen_ai.tool.call.arguments": {"input": '{"a": 1}'},
          "gen_ai.tool.call.result": {"output": 1}}, {"input": '{"a": 1}'}, {"output": 1}),
        ({"openinference.span.kind": "TOOL", "tool.name": "t", "input.value": "{broken",
          "output.value": "{broken"}, None, "{broken"),
        ({**GEN_AI, "gen_ai.tool.call.result": '{"content": [{"type": "text", "text": "[1]"}], '
          '"isError": false}'}, None, [1]),
        ({**GEN_AI, "gen_ai.tool.call.result": "content='it\\'s' name='t' tool_call_id='c1'"},
         None, "it's"),
    ],
)  # fmt: skip
def test_arguments_and_results_by_producer(
    fields: dict[str, Any], arguments: Any, result: Any, tmp_path: Path
) -> None:
    ((run,), unmapped) = otlp(tmp_path, {"at": 1, "name": "t", "attributes": fields})
    assert each(run, "tool", "args", "result") == [("t", arguments, result)]
    assert unmapped.incomplete.total() == (arguments is None)


def test_a_tool_message_marks_the_call_as_failed(tmp_path: Path) -> None:
    fields = {"openinference.span.kind": "TOOL", "tool.name": "t", "input.value": "7",
            "output.value": {"type": "tool", "data": TOOL_MESSAGE}}  # fmt: skip
    answer = {"name": "t", "args": {"order": 7}, "id": "c9"}
    above = {"openinference.span.kind": "CHAIN", "input.value": [answer]}
    ((run,), _) = otlp(
        tmp_path, {"at": 0, "attributes": above},
        {"at": 1, "attributes": fields, "parent": "eee19b7ec3c1b100"},
    )  # fmt: skip
    assert each(run, "args", "result", "error") == [({"order": 7}, {"a": 1}, True)]


def test_long_results_and_literals_are_bounded(tmp_path: Path) -> None:
    nested = "{'a': " + "[" * 30_000 + "]" * 30_000 + "}"
    many = {"rows": [{"id": n, "text": "x" * 1_000} for n in range(2_000)]}
    spans = [
        {**GEN_AI, "gen_ai.tool.call.result": "y" * 3_000_000},
        {**GEN_AI, "gen_ai.tool.call.result": many},
        {"traceloop.span.kind": "tool", "gen_ai.tool.name": "t",
         "gen_ai.tool.call.arguments": {"input_str": nested, "tags": []}},
    ]  # fmt: skip
    ((run,), unmapped) = otlp(tmp_path, *({"at": n, "attributes": s} for n, s in enumerate(spans)))
    first, second, third = run["steps"]
    assert first["result"].endswith("... (2934464 characters left out)")
    assert first["result_chars"] == 3_000_000
    assert len(json.dumps(second["result"])) < 80_000
    assert second["result"]["rows"][0] == {"id": 0, "text": "x" * 1_000}
    assert third["args"] is None
    assert unmapped.incomplete["results cut to 65,536 characters"] == 2


def test_messages_stand_once_and_before_their_calls(tmp_path: Path) -> None:
    def fields(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": text}]}

    def chat(at: int, given: list[Any], text: str, *calls: str) -> dict[str, Any]:
        parts: list[Any] = [{"type": "text", "content": text}] if text else []
        parts += [{"type": "tool_call", "id": call, "name": "t", "arguments": {}} for call in calls]
        return {"at": at, "attributes": {
            "gen_ai.operation.name": "chat", "gen_ai.input.messages": given,
            "gen_ai.output.messages": [{"role": "assistant", "parts": parts}]}}  # fmt: skip

    def call(at: int, id: str) -> dict[str, Any]:
        return {"at": at, "attributes": {**GEN_AI, "gen_ai.tool.call.id": id}}

    hi, which, this = fields("user", "hi"), fields("assistant", "which?"), fields("user", "this")
    ((run,), _) = otlp(
        tmp_path, chat(0, [hi], "which?"), chat(2, [hi, which, this], "looking", "c1", "c2"),
        call(4, "c1"), call(6, "c2"), chat(8, [hi, which, this, fields("assistant", "looking")],
        "done"),
    )  # fmt: skip
    assert each(run, "user_before", "said_before", "turn") == [
        (["hi", "this"], [None, "which?", "looking"], 0),
        ([], [None], 0),
    ]
    assert (run["user_after"], run["said_after"]) == ([], ["done"])


def test_a_missed_guess_is_no_call_of_the_model(tmp_path: Path) -> None:
    fields = [{**GEN_AI, "headstart.speculation.hit": hit} for hit in ("false", "true")]
    ((run,), unmapped) = otlp(tmp_path, *({"at": n, "attributes": s} for n, s in enumerate(fields)))
    assert len(run["steps"]) == 1
    assert unmapped.kinds == {"missed guess": 1}


def test_a_hit_and_the_call_that_it_answered_are_one_call(tmp_path: Path) -> None:
    spans: list[dict[str, Any]] = []
    for at, hit in enumerate((True, None, True, False)):
        guess = {"headstart.speculation.started": True, "gen_ai.tool.call.id": "used again"}
        known = {} if hit is None else {"headstart.speculation.hit": hit}
        spans += [
            {"at": 4 * at, "attributes": GEN_AI | guess | known},
            {"at": 4 * at + 2, "attributes": GEN_AI | {"gen_ai.tool.call.id": "used again"}},
        ]
    ((run,), unmapped) = otlp(tmp_path, *spans)
    assert len(run["steps"]) == 4
    assert unmapped.kinds == {"missed guess": 2}


def test_langfuse_names_tools_by_themselves(tmp_path: Path) -> None:
    times = {"traceId": "t", "startTime": f"{AT}1Z", "endTime": f"{AT}2Z"}
    rows: list[dict[str, Any]] = [
        {"id": "m", "type": "GENERATION", "traceId": "t", "startTime": f"{AT}0Z",
         "endTime": f"{AT}1Z", "input": [{"role": "user", "content": "hi"}],
         "output": {"role": "assistant", "content": ""}},
        {"id": "1", "type": "TOOL", "name": "execute_tool say_hello", **times,
         "input": '{"to": "you"}', "output": '{"said": true}'},
        {"id": "2", "type": "SPAN", "name": "running tool: find", **times,
         "metadata": {"attributes": {"gen_ai.tool.name": "find", "tool_arguments": '{"q": 1}',
                                     "tool_response": "it"}}},
        {"id": "3", "type": "TOOL", "name": "x", **times, "level": "ERROR", "statusMessage": "no"},
    ]  # fmt: skip
    file = tmp_path / "x.json"
    file.write_text(json.dumps(rows))
    (run,) = langfuse_runs(file, Unmapped())
    assert each(run, "tool", "args", "result", "error", "turn") == [
        ("say_hello", {"to": "you"}, {"said": True}, False, 0),
        ("find", {"q": 1}, "it", False, 0),
        ("x", None, "no", True, 0),
    ]
    assert run["steps"][0]["user_before"] == ["hi"]


def test_google_adk_in_langfuse(tmp_path: Path) -> None:
    """As Langfuse exports it: input and output are empty, the attributes are not."""
    fields = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "say_hello",
            "gcp.vertex.agent.tool_call_args": {"to": "you"},
            "gcp.vertex.agent.tool_response": {"greeting": "hello"},
            "openinference.span.kind": "TOOL"}  # fmt: skip
    call = {"function_call": {"name": "say_hello", "args": {"to": "you"}}}
    rows: list[dict[str, Any]] = [
        {"id": "m", "type": "GENERATION", "traceId": "t", "startTime": f"{AT}0Z",
         "endTime": f"{AT}1Z", "input": {"contents": [{"parts": [{"text": "hi"}], "role": "user"}]},
         "output": {"content": {"parts": [{"text": "Wait."}, call], "role": "model"}}},
        {"id": "1", "type": "TOOL", "name": "execute_tool say_hello", "traceId": "t",
         "startTime": f"{AT}2Z", "endTime": f"{AT}3Z", "input": {}, "output": {},
         "metadata": {"attributes": fields}},
        {"id": "2", "type": "TOOL", "name": "say_hello", "traceId": "t", "startTime": f"{AT}2Z",
         "endTime": f"{AT}3Z", "input": {"to": "me"},
         "output": {"id": "adk-1", "name": "say_hello", "response": {"greeting": "hi"}}},
    ]  # fmt: skip
    file = tmp_path / "x.json"
    file.write_text(json.dumps(rows))
    (run,) = langfuse_runs(file, Unmapped())
    assert each(run, "tool", "args", "result", "turn") == [
        ("say_hello", {"to": "you"}, {"greeting": "hello"}, 0),
        ("say_hello", {"to": "me"}, {"greeting": "hi"}, 0),
    ]
    assert each(run, "user_before", "said_before")[0] == (["hi"], [None, "Wait."])


def test_langsmith_inputs_and_outputs(tmp_path: Path) -> None:
    human = {"lc": 1, "type": "constructor", "id": ["HumanMessage"], "kwargs": {"content": "hi"}}
    calls = [{"name": "find", "args": {"q": "a"}, "id": "c1"}]
    asked = {"lc": 1, "id": ["AIMessage"], "kwargs": {"content": "", "tool_calls": calls}}
    times = {"trace_id": "t", "start_time": f"{AT}3", "end_time": f"{AT}4"}
    rows: list[dict[str, Any]] = [
        {"id": "m", "run_type": "llm", "name": "m", "trace_id": "t", "start_time": f"{AT}1",
         "end_time": f"{AT}2", "inputs": {"messages": [[human]]},
         "outputs": {"generations": [[{"text": "", "message": asked}]]}},
        {"id": "1", "run_type": "tool", "name": "find", **times, "inputs": {"input": "a"},
         "outputs": {"output": {"type": "tool", "content": "it", "tool_call_id": "c1"}}},
        {"id": "2", "run_type": "tool", "name": "buy", **times,
         "inputs": {"input": "{'n': True}"}, "error": "ValueError('sold')"},
    ]  # fmt: skip
    file = tmp_path / "x.json"
    file.write_text(json.dumps(rows))
    (run,) = langsmith_runs(file, Unmapped())
    assert each(run, "tool", "args", "result", "error") == [
        ("find", {"q": "a"}, "it", False),
        ("buy", {"n": True}, "ValueError('sold')", True),
    ]
    assert run["steps"][0]["user_before"] == ["hi"]


def test_checked_runs_keep_their_content(tmp_path: Path) -> None:
    run = exported("pydantic-default")
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(run))
    (again,) = checked_runs(file, Unmapped())
    assert again == run
