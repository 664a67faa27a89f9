"""Traces however instrumentations and services write them: the same calls, and none twice."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from replay.importers.agent_runs import NotOfThisForm, Run, Unmapped
from replay.importers.otlp import otlp_runs
from tests.replay.imported_runs import readable

T = 1_790_000_000
"""Unix seconds of the first call's begin."""
TRACE = "5b8efff798038103d269b633813fc60c"
Spans = list[dict[str, Any]]


def pair(name: str, value: Any) -> dict[str, Any]:
    kind = "boolValue" if isinstance(value, bool) else "stringValue"
    return {"key": name, "value": {kind: value}}


def span(number: int, name: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    begin = T + 2 * number
    return {
        "traceId": TRACE, "spanId": f"eee19b7ec3c1b1{number:02x}", "name": name, "kind": 1,
        "startTimeUnixNano": f"{begin}000000000", "endTimeUnixNano": f"{begin + 1}000000000",
        "attributes": [pair(*each) for each in fields.items()], "status": {}, **more,
    }  # fmt: skip


def call(number: int, tool: str, **more: Any) -> dict[str, Any]:
    fields = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    return span(number, f"execute_tool {tool}", {**fields, **more.pop("fields", {})}, **more)


def group(*spans: dict[str, Any], scope: str = "scopeSpans") -> dict[str, Any]:
    named = {"attributes": [pair("service.name", "bot")]}
    return {"resource": named, scope: [{"scope": {"name": "x"}, "spans": list(spans)}]}


def document(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [group(*spans)]}


def imported(folder: Path, content: str | bytes | Any, *more: Any) -> tuple[list[Run], Unmapped]:
    files, unmapped = [], Unmapped()
    for number, each in enumerate((content, *more)):
        file = folder / f"{number}.json"
        text = each if isinstance(each, str | bytes) else json.dumps(each)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        files.append(file)
    runs = list(otlp_runs(files, unmapped))
    readable(folder, runs)
    return runs, unmapped


def tools(runs: list[Run]) -> list[list[str]]:
    return [[step["tool"] for step in run["steps"]] for run in runs]


CALLS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "GenAI": lambda t: (f"execute_tool {t}", {"gen_ai.operation.name": "execute_tool",
                                              "gen_ai.tool.name": t}),
    "GenAI by its name alone": lambda t: (f"execute_tool {t}", {}),
    "pydantic-ai 1": lambda t: ("running tool", {"gen_ai.tool.name": t}),
    "pydantic-ai, an older one": lambda t: (f"running tool: {t}", {"gen_ai.tool.name": t}),
    "OpenInference": lambda t: (t, {"openinference.span.kind": "TOOL", "tool.name": t}),
    "OpenInference by the span's name": lambda t: (t, {"openinference.span.kind": "TOOL"}),
    "OpenLLMetry": lambda t: (f"{t}.tool", {"traceloop.span.kind": "tool",
                                            "traceloop.entity.name": t}),
    "OpenLLMetry by the span's name": lambda t: (f"{t}.tool", {"traceloop.span.kind": "tool"}),
    "Laminar": lambda t: (t, {"lmnr.span.type": "TOOL", "lmnr.span.path": ["agent", t]}),
    "Langfuse": lambda t: (t, {"langfuse.observation.type": "tool"}),
    "LangSmith": lambda t: (t, {"langsmith.span.kind": "tool"}),
    "LangWatch": lambda t: (t, {"langwatch.span.type": "tool"}),
    "MLflow": lambda t: (t, {"mlflow.spanType": '"TOOL"'}),
    "Vercel AI": lambda t: ("ai.toolCall", {"operation.name": "ai.toolCall my-agent",
                                            "ai.operationId": "ai.toolCall",
                                            "ai.toolCall.name": t}),
    "Vercel AI, no operation id": lambda t: ("ai.toolCall", {"operation.name": "ai.toolCall",
                                                             "ai.toolCall.name": t}),
    "MCP": lambda t: (f"tools/call {t}", {"mcp.method.name": "tools/call", "gen_ai.tool.name": t}),
    "MCP by the span's name": lambda t: (f"tools/call {t}", {"mcp.method.name": "tools/call"}),
    "Google ADK": lambda t: (f"execute_tool {t}", {"gen_ai.system": "gcp.vertex.agent",
                                                   "gen_ai.tool.name": t}),
    "Strands": lambda t: (f"execute_tool {t}", {"gen_ai.operation.name": "execute_tool",
                                                "gen_ai.tool.name": t,
                                                "gen_ai.tool.status": "success"}),
}  # fmt: skip


@pytest.mark.parametrize("how", CALLS)
def test_calls_of_every_instrumentation(how: str, tmp_path: Path) -> None:
    spans = [span(n, *CALLS[how](tool)) for n, tool in enumerate(("search", "buy"))]
    runs, unmapped = imported(tmp_path, document(*spans))
    assert tools(runs) == [["search", "buy"]]
    assert not unmapped.counts


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("chat gpt", {"gen_ai.operation.name": "chat", "gen_ai.tool.name": "x"}),
        ("agent", {"openinference.span.kind": "AGENT", "tool.name": "x"}),
        ("LLM", {"lmnr.span.type": "LLM"}),
        ("tools/list", {"mcp.method.name": "tools/list", "gen_ai.tool.name": "x"}),
        ("ai.generateText", {"operation.name": "ai.generateText", "ai.toolCall.name": "x"}),
        ("GET /", {"http.request.method": "GET"}),
        ("execute_task tools", {"traceloop.span.kind": "task", "traceloop.entity.name": "tools"}),
        ("running tools", {"tools": ["search"]}),
    ],
)
def test_spans_that_are_not_calls(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    other = {**span(9, name, {}), "attributes": [
        {"key": k, "value": {"arrayValue": v} if isinstance(v, list) else {"stringValue": v}}
        for k, v in fields.items()]}  # fmt: skip
    runs, unmapped = imported(tmp_path, document(call(1, "search"), other))
    assert tools(runs) == [["search"]]
    assert unmapped.counts == {"spans that execute no tool": 1}


STANDARD = [call(1, "search"), call(2, "buy")]


def snake(text: str) -> str:
    for name in ("resourceSpans", "scopeSpans", "traceId", "spanId", "startTimeUnixNano",
                 "endTimeUnixNano", "stringValue"):  # fmt: skip
        text = text.replace(name, "".join("_" + c.lower() if c.isupper() else c for c in name))
    return text


def in_base64(spans: Spans) -> Spans:
    def encoded(text: str) -> str:
        return base64.b64encode(bytes.fromhex(text)).decode()

    return [{**s, "traceId": encoded(s["traceId"]), "spanId": encoded(s["spanId"])} for s in spans]


def of_jaeger(spans: Spans) -> Spans:
    return [
        {"traceID": s["traceId"], "spanID": s["spanId"], "operationName": s["name"],
         "startTime": int(s["startTimeUnixNano"]) // 1000, "duration": 1_000_000,
         "processID": "p1", "references": [],
         "tags": [{"key": p["key"], "type": "string", "value": p["value"]["stringValue"]}
                  for p in s["attributes"]]} for s in spans
    ]  # fmt: skip


def of_console(each: dict[str, Any]) -> dict[str, Any]:
    at = datetime.fromtimestamp(int(each["startTimeUnixNano"]) / 1e9, UTC)
    return {
        "name": each["name"], "kind": "SpanKind.INTERNAL", "parent_id": None,
        "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{each['spanId']}"},
        "start_time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", "end_time": None,
        "status": {"status_code": "UNSET"},
        "attributes": {p["key"]: p["value"]["stringValue"] for p in each["attributes"]},
        "resource": {"attributes": {"service.name": "bot"}, "schema_url": ""},
    }  # fmt: skip


JAEGER = {
    "traceID": TRACE,
    "spans": of_jaeger(STANDARD),
    "processes": {"p1": {"serviceName": "bot"}},
}
FORMS: dict[str, str | bytes | Any] = {
    "one document": document(*STANDARD),
    "a document a line": "\n".join(json.dumps(document(each)) for each in STANDARD),
    "an array of documents": [document(each) for each in STANDARD],
    "bare elements a line": "\n".join(json.dumps(group(each)) for each in STANDARD),
    "pretty-printed": json.dumps(document(*STANDARD), indent=2),
    "pretty-printed, appended": "".join(json.dumps(document(e), indent=2) + "\n" for e in STANDARD),
    "appended without a break": "".join(json.dumps(document(each)) for each in STANDARD),
    "pretty-printed without a break": "".join(json.dumps(document(e), indent=1) for e in STANDARD),
    "a line, then pretty-printed": json.dumps(document(STANDARD[0])) + "\n"
    + json.dumps(document(STANDARD[1]), indent=4) + "\n",
    "JSON text sequence": "".join(f"\x1e{json.dumps(document(each))}\n" for each in STANDARD),
    "snake case": snake(json.dumps(document(*STANDARD))),
    "before 1.0": {"resourceSpans": [group(*STANDARD, scope="instrumentationLibrarySpans")]},
    "Tempo": {"batches": [group(*in_base64(STANDARD))]},
    "Tempo's second API": {"trace": document(*in_base64(STANDARD))},
    "Jaeger's third API": {"result": document(*STANDARD)},
    "Jaeger's API": {"data": [JAEGER], "total": 0, "errors": None},
    "Jaeger's trace": JAEGER,
    "console exporter": "\n".join(json.dumps(of_console(each), indent=4) for each in STANDARD),
    "numbers and names": document(*[{**s, "startTimeUnixNano": int(s["startTimeUnixNano"]),
                                     "status": {"code": "STATUS_CODE_UNSET"}} for s in STANDARD]),
    "mark": "\ufeff" + json.dumps(document(*STANDARD)),
    "UTF-16": json.dumps(document(*STANDARD)).encode("utf-16"),
    "gzip": gzip.compress(json.dumps(document(*STANDARD)).encode()),
    "out of order": document(*reversed(STANDARD)),
}  # fmt: skip


@pytest.mark.parametrize("how", FORMS)
def test_every_form_of_the_same_calls(how: str, tmp_path: Path) -> None:
    (run,), unmapped = imported(tmp_path, FORMS[how])
    assert tools([run]) == [["search", "buy"]]
    assert (run["domain"], run["task_id"]) == ("bot", TRACE)
    assert [step["called_at"] for step in run["steps"]] == [(T + 2) * 1000, (T + 4) * 1000]
    assert not any(step["error"] for step in run["steps"])
    assert not unmapped.counts
    assert not unmapped.duplicates


@pytest.mark.parametrize(
    "failed",
    [
        {"status": {"code": 2}},
        {"status": {"code": "STATUS_CODE_ERROR"}},
        {"status": {"message": "no"}, "fields": {"error.type": "timeout"}},
        {"fields": {"otel.status_code": "ERROR"}},
        {"fields": {"error": True}},
    ],
)
def test_calls_that_failed(failed: dict[str, Any], tmp_path: Path) -> None:
    (run,), _ = imported(tmp_path, document(call(1, "search", **failed)))
    assert [step["error"] for step in run["steps"]] == [True]


@pytest.mark.parametrize("files", [1, 2])
def test_spans_exported_twice_count_once(files: int, tmp_path: Path) -> None:
    ended, open_ = call(1, "search"), {**call(1, "search"), "endTimeUnixNano": "0"}
    for first, second in ((ended, ended), (open_, ended), (ended, open_)):
        content = [document(first, call(2, "buy")), document(second)]
        runs, unmapped = imported(tmp_path, *([content] if files == 1 else content))
        assert tools(runs) == [["search", "buy"]]
        assert runs[0]["steps"][0]["returned_at"] == (T + 3) * 1000
        assert unmapped.duplicates == {"tool spans": 1}


def test_the_calls_of_a_trace_may_be_in_several_files(tmp_path: Path) -> None:
    runs, _ = imported(tmp_path, document(call(2, "buy")), document(call(1, "search")))
    assert tools(runs) == [["search", "buy"]]


def inside(number: int, of: int, tool: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """A call of a tool server, during another span."""
    own = {"mcp.method.name": "tools/call", "gen_ai.tool.name": tool} if fields is None else fields
    made = span(number, f"tools/call {tool}", own, parentSpanId=f"eee19b7ec3c1b1{of:02x}")
    begin = T + 2 * of
    return {
        **made,
        "startTimeUnixNano": f"{begin}100000000",
        "endTimeUnixNano": f"{begin}900000000",
    }


AGENT = {"gen_ai.operation.name": "invoke_agent"}
CALLED = {"gen_ai.operation.name": "execute_tool"}
TWICE = {
    "the server's view": ([call(1, "search"), inside(9, 1, "search")], ["search"]),
    "client's and server's": (
        [call(1, "search"), inside(8, 1, "search"), inside(9, 8, "search")], ["search"]),
    "below a span of another kind": (
        [call(1, "search"), inside(8, 1, "", {"http.method": "POST"}), inside(9, 8, "search")],
        ["search"]),
    "the server's name for it": ([call(1, "search"), inside(9, 1, "brave_search")], ["search"]),
    "a longer name": (
        [call(1, "shop.search"), inside(9, 1, "search", {**CALLED, "gen_ai.tool.name": "search"})],
        ["shop.search"]),
    "two instrumentations, side by side": (
        [call(1, "search", fields={"gen_ai.tool.call.id": "c1"}),
         {**inside(9, 1, "search", {"openinference.span.kind": "TOOL", "tool.name": "search",
                                    "tool_call.id": "c1"}), "parentSpanId": ""}], ["search"]),
    "the server alone": ([inside(8, 7, "search"), inside(9, 8, "search")], ["search"]),
    "another tool inside": (
        [call(1, "plan"), inside(9, 1, "search", {**CALLED, "gen_ai.tool.name": "search"})],
        ["plan", "search"]),
    "the same tool, by an agent inside": (
        [call(1, "ask"), inside(8, 1, "", AGENT),
         inside(9, 8, "ask", {**CALLED, "gen_ai.tool.name": "ask"})], ["ask", "ask"]),
    "one id, one after the other": (
        [call(1, "search", fields={"gen_ai.tool.call.id": "c1"}),
         call(2, "search", fields={"gen_ai.tool.call.id": "c1"})], ["search", "search"]),
    "the sum of calls side by side": (
        [call(1, "search"),
         span(2, "execute_tool (merged)", {**CALLED, "gen_ai.tool.name": "(merged tools)"})],
        ["search"]),
}  # fmt: skip


def nested(number: int, of: int, given: str = "", id: str = "") -> dict[str, Any]:
    """A call of `task` by `task`."""
    fields = {**CALLED, "gen_ai.tool.name": "task", "gen_ai.tool.call.id": id,
              "gen_ai.tool.call.arguments": given and f'{{"p": "{given}"}}'}  # fmt: skip
    return inside(number, of, "task", {name: value for name, value in fields.items() if value})


def outer(given: str = "", id: str = "") -> dict[str, Any]:
    own = {"gen_ai.tool.call.id": id, "gen_ai.tool.call.arguments": given and f'{{"p": "{given}"}}'}
    return call(1, "task", fields={name: value for name, value in own.items() if value})


TWICE |= {
    "other arguments": (
        [outer("o"), nested(8, 1, "i1"), nested(9, 1, "i2")], ["task", "task", "task"]),
    "other ids": ([outer(id="a"), nested(8, 1, id="b"), nested(9, 1, id="c")], ["task"] * 3),
    "one of two calls inside": ([outer("o"), nested(8, 1), nested(9, 1)], ["task"] * 2),
    "the one that has the arguments": (
        [outer("o"), nested(8, 1), nested(9, 1, "o"), nested(7, 9, "other")], ["task"] * 3),
    "two views with the call's id": (
        [outer(id="a"), nested(8, 1, id="a"), nested(9, 1, id="a")], ["task"]),
    "arguments that differ two levels up": (
        [outer("o"), nested(8, 1), nested(9, 8, "i")], ["task"] * 2),
    "each in the other": ([nested(1, 2), nested(2, 1)], ["task"]),
    "each in the other, with other arguments": (
        [nested(1, 2, "a"), nested(2, 1, "b")], ["task"] * 2),
}  # fmt: skip


@pytest.mark.parametrize("how", TWICE)
def test_a_call_that_is_traced_twice_counts_once(how: str, tmp_path: Path) -> None:
    spans, expected = TWICE[how]
    for order in (spans, spans[::-1]):
        runs, _ = imported(tmp_path, document(*order))
        assert tools(runs) == [expected]


def test_spans_that_are_each_others_parents_end(tmp_path: Path) -> None:
    loop = [inside(1, 2, "a", {"x": "y"}), inside(2, 1, "b", {"x": "y"}), inside(3, 1, "search")]
    assert tools(imported(tmp_path, document(*loop))[0]) == [["search"]]


@pytest.mark.parametrize(
    "key",
    ["gen_ai.conversation.id", "langfuse.session.id", "lmnr.association.properties.session_id"],
)
def test_a_conversation_over_several_traces_is_one_run(key: str, tmp_path: Path) -> None:
    spans = [
        {**call(2, "buy", fields={key: "c1"}), "traceId": "2" * 32},
        {**call(1, "search"), "traceId": "1" * 32},
        {**span(0, "invoke_agent", {**AGENT, key: "c1"}), "traceId": "1" * 32},
        {**call(3, "other", fields={key: "c2"}), "traceId": "3" * 32},
        {**call(4, "alone"), "traceId": "4" * 32},
    ]
    runs, _ = imported(tmp_path, document(*spans))
    assert {run["task_id"]: tools([run])[0] for run in runs} == {
        "c1": ["search", "buy"], "c2": ["other"], "4" * 32: ["alone"],
    }  # fmt: skip


@pytest.mark.parametrize("value", [{"intValue": "42"}, {"stringValue": "42"}])
def test_a_conversation_id_may_be_an_integer(tmp_path: Path, value: dict[str, str]) -> None:
    spans = [
        {**call(number, tool), "traceId": f"{number}" * 32}
        for number, tool in ((1, "search"), (2, "buy"))
    ]
    for each in spans:
        each["attributes"] = [
            *each["attributes"],
            {"key": "gen_ai.conversation.id", "value": value},
        ]
    (run,) = imported(tmp_path, document(*spans))[0]
    assert (run["task_id"], tools([run])) == ("42", [["search", "buy"]])


@pytest.mark.parametrize("key", ["user.id", "enduser.id", "langfuse.user.id"])
def test_a_conversation_id_of_two_users_is_two_runs(key: str, tmp_path: Path) -> None:
    """Also where another span of the trace than the call names the user."""
    spans = [
        {
            **call(1, "search", fields={"gen_ai.conversation.id": "c", key: "u1"}),
            "traceId": "1" * 32,
        },
        {**call(2, "buy", fields={"gen_ai.conversation.id": "c"}), "traceId": "2" * 32},
        {**span(0, "invoke_agent", {**AGENT, key: "u2"}), "traceId": "2" * 32},
    ]
    runs, _ = imported(tmp_path, document(*spans))
    assert sorted(tools(runs)) == [["buy"], ["search"]]
    assert len({run["task_id"] for run in runs}) == 2


def test_a_trace_of_several_conversations_is_a_run_by_itself(tmp_path: Path) -> None:
    spans = [call(n, f"t{n}", fields={"gen_ai.conversation.id": f"c{n}"}) for n in range(2)]
    (run,), _ = imported(tmp_path, document(*spans))
    assert run["task_id"] == TRACE


@pytest.mark.parametrize("end", ["1", str((T + 1) * 10**9), "-5", "no", None, {"a": 1}, 10**40])
def test_an_invalid_end_is_unknown(end: Any, tmp_path: Path) -> None:
    (run,), unmapped = imported(tmp_path, document({**call(1, "search"), "endTimeUnixNano": end}))
    (step,) = run["steps"]
    assert (step["called_at"], step["returned_at"]) == ((T + 2) * 1000, None)
    before = end in ("1", str((T + 1) * 10**9))
    assert unmapped.counts["ends of tool spans before their start"] == before


def test_a_cut_file_is_reported(tmp_path: Path) -> None:
    whole = json.dumps(document(*STANDARD))
    with pytest.raises(NotOfThisForm, match="lines that are not JSON"):
        imported(tmp_path, whole[: len(whole) // 2])
