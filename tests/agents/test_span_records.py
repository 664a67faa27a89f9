"""Records of a Collector become events: JSON and protobuf alike, and the same events each time."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from agents.spans.record_conversion import ConvertedRecords, RecordConversion
from headstart.events.frames import MAX_FRAME_BYTES
from headstart.events.schema import MAX_EVENT_BYTES
from headstart.events.validation import validate
from processing.records.batch import RecordBatch
from topics.catalogue import EPISODES_GROUP
from topics.dead_letters.messages import GROUP_HEADER
from topics.spans.records import ProtobufMissing, SpansUnreadable, read_spans

EXPORTS = Path(__file__).parents[1] / "replay" / "data" / "otlp"
NOW = 1_795_713_500_000
TRACE = "5b8efff798038103d269b633813fc60c"


def protobuf(document: dict[str, Any]) -> bytes:
    """The same spans as the Collector's encoding otlp_proto; JSON of protobuf has base64 ids."""

    def with_ids(value: Any) -> Any:
        if isinstance(value, list):
            return [with_ids(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64encode(bytes.fromhex(each)).decode()
            if key in ("traceId", "spanId", "parentSpanId") else with_ids(each)
            for key, each in value.items()
        }  # fmt: skip

    return ParseDict(with_ids(document), TracesData()).SerializeToString()


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXPORTS / f"{name}.jsonl").read_text().splitlines()]


def batch(*values: bytes | None, begin: int = 7) -> RecordBatch:
    count = len(values)
    return RecordBatch(
        "otlp_spans", 1, begin, begin + count, [*range(begin, begin + count)],
        [NOW] * count, [None] * count, [*values],
    )  # fmt: skip


def converted(*values: bytes | None, begin: int = 7) -> ConvertedRecords:
    records = batch(*values, begin=begin)
    return RecordConversion(1_800_000_000, 4).convert(records, range(len(values)))


def events(made: ConvertedRecords) -> list[dict[str, Any]]:
    return [event for record in made.records for event in json.loads(record.value)]


def one(given: dict[str, Any], **more: Any) -> bytes:
    """A record with one span of a call."""
    texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in given.items()}
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()]
    span = {
        "traceId": TRACE, "spanId": "eee19b7ec3c1b101", "name": "x", "attributes": attributes,
        "startTimeUnixNano": f"{NOW - 40}000000", "endTimeUnixNano": f"{NOW - 10}000000", **more,
    }  # fmt: skip
    return orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


CALL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find"}


@pytest.mark.parametrize("name", sorted(file.stem for file in EXPORTS.glob("*.jsonl")))
def test_json_and_protobuf_give_the_same_events(name: str) -> None:
    documents = lines(name)
    found = events(converted(*map(orjson.dumps, documents)))
    assert found == events(converted(*map(protobuf, documents)))
    assert [(each["tool_id"], each["success"]) for each in found] == [
        ("search", True), ("search", True), ("broken", False),
    ]  # fmt: skip
    assert [each["data"]["result"]["output"] for each in found][:2] == ["found a", "found b"]
    for each in found:
        validate(each)
        assert (each["event_type"], each["workflow_type"]) == ("task_complete", name)


def test_an_event_has_the_fields_of_its_span() -> None:
    given = {
        **CALL, "gen_ai.tool.call.arguments": {"q": 1}, "gen_ai.tool.call.result": [1],
        "gen_ai.conversation.id": "c", "user.id": "u", "gen_ai.agent.name": "a",
        "gen_ai.tool.call.id": "c1", "headstart.tenant": "acme",
        "headstart.workflow_type": "refund",
    }  # fmt: skip
    (event,) = events(converted(one(given)))
    assert event.pop("id")[14] == "7"
    assert event.pop("origin")[1] == 7 << 16
    assert event == {
        "event_type": "task_complete", "tenant": "acme", "workflow_type": "refund",
        "workflow_id": "c", "session_id": "c", "user_id": "u", "agent_id": "a", "tool_id": "find",
        "timestamp": NOW - 10, "success": True,
        "data": {
            "arguments": {"q": 1}, "result": {"output": [1], "execution_time_ms": 30},
            "call_id": "c1",
            "span": {"trace_id": TRACE, "span_id": "eee19b7ec3c1b101", "parent_id": ""},
        },
    }  # fmt: skip


def test_a_record_read_again_gives_the_same_events() -> None:
    values = [orjson.dumps(document) for document in lines("langgraph-genai")]
    first, again = converted(*values), converted(*values)
    assert first == again
    elsewhere = events(converted(*values, begin=100))  # the exporter sent it again
    assert [each["id"] for each in elsewhere] == [each["id"] for each in events(first)]
    positions = [each["origin"][1] for each in (*events(first), *elsewhere)]
    assert positions == sorted(set(positions))


def test_unreadable_records_are_dead_letters_and_cost_nothing_else() -> None:
    bad = [None, b"", b"{", b"[1]", b'{"resourceLogs": []}', b"\xff\xff\xff", b"\x12\x02hi"]
    made = converted(*bad, one(CALL))
    assert made.events == 1
    assert len(made.dead_letters) == len(bad)
    assert "resourceLogs" in made.dead_letters[4].reason
    headers = dict(made.dead_letters[1].headers)
    assert headers["__connect.errors.topic"] == b"otlp_spans"
    assert headers[GROUP_HEADER] == b"headstart-spans"


def test_records_for_another_group_are_left_alone() -> None:
    records = batch(one(CALL))
    records.headers[7] = [(GROUP_HEADER, EPISODES_GROUP.encode())]
    assert RecordConversion(1, 4).convert(records, range(1)) == ConvertedRecords()


def test_without_the_extra_protobuf_is_no_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.json_format", None)
    with pytest.raises(ProtobufMissing, match=r"headstart-service\[otlp\]"):
        converted(protobuf(lines("langgraph-genai")[0]))
    assert converted(one(CALL)).events == 1


@pytest.mark.parametrize(
    "given",
    [
        {**CALL, "gen_ai.tool.call.result": "x" * 3_000_000},
        {**CALL, "gen_ai.tool.call.arguments": {"text": "\U0001f600" * 200_000}},
        {**CALL, "gen_ai.tool.call.result": "[" * 60 + "]" * 60},
        {**CALL, "gen_ai.tool.name": "t" * 5_000, "gen_ai.conversation.id": "a\x1fb\x00"},
        {**CALL, "gen_ai.tool.call.result": {"n": 2**63}, "user.id": ""},
        {
            **CALL,
            "gen_ai.tool.call.arguments": {"n": 2**70},
            "gen_ai.tool.call.result": '["\\ud83d"]',
        },
        {**CALL, "gen_ai.tool.call.arguments": '{"x": %s}' % ("[" * 300 + "]" * 300)},
    ],
)
def test_events_keep_within_the_contract(given: dict[str, Any]) -> None:
    made = converted(one(given))
    (event,) = events(made)
    validate(event)
    assert not made.dead_letters
    assert len(made.records[0].value) < min(MAX_EVENT_BYTES, MAX_FRAME_BYTES)


def test_secrets_are_scrubbed() -> None:
    key = "sk-" + "ab12" * 12
    given = {**CALL, "gen_ai.tool.call.arguments": {"password": "hunter22"},
            "gen_ai.tool.call.result": f"use {key}"}  # fmt: skip
    (event,) = events(converted(one(given)))
    assert event["data"]["arguments"] == {"password": "[scrubbed]"}
    assert key not in json.dumps(event)


def test_a_call_counts_once() -> None:
    served = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "find"}
    own = {**CALL, "headstart.speculation.hit": "true"}
    merged = {**CALL, "gen_ai.tool.name": "(merged tools)"}
    assert converted(one(served, kind=2), one(own), one(merged)).events == 0
    assert converted(one(served, kind=3)).events == 1


def test_invalid_times_become_the_records() -> None:
    (event,) = events(converted(one(CALL, startTimeUnixNano="0", endTimeUnixNano="no")))
    assert event["timestamp"] == NOW
    assert event["data"]["result"] == {}


def test_an_error_names_what_is_there_instead() -> None:
    with pytest.raises(SpansUnreadable, match="it has: a, b"):
        read_spans(b'{"b": 1, "a": 2}')
