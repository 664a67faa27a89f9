"""Whatever one span holds, the worker of spans continues, and loses nothing else of the record."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from agents.spans.record_conversion import ConvertedRecords, RecordConversion
from headstart.events.schema import LAST_MS
from headstart.events.validation import validate
from processing.records.batch import RecordBatch
from topics.spans.conversation import model_call

NOW = 1_795_713_500_000
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find"}
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"


def pairs(own: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in own.items()]


def span(own: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    tool = {key: {"stringValue": value} for key, value in TOOL.items()}
    return {
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b101", "name": "x",
        "startTimeUnixNano": f"{NOW - 40}000000", "endTimeUnixNano": f"{NOW}000000",
        "attributes": pairs({**tool, **(own or {})}), **more,
    }  # fmt: skip


def record(*spans: Any) -> bytes:
    # The standard library also writes what orjson refuses to write.
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [*spans]}]}]}).encode()


def converted(*values: bytes, at: int = NOW) -> ConvertedRecords:
    count = len(values)
    batch = RecordBatch(
        "otlp_spans", 1, 0, count, [*range(count)], [at] * count, [None] * count, [*values]
    )
    return RecordConversion(1_800_000_000, 4).convert(batch, range(count))


def events(made: ConvertedRecords) -> list[dict[str, Any]]:
    found = [event for each in made.records for event in orjson.loads(each.value)]
    for event in found:
        validate(event)
    return found


def text(value: str) -> dict[str, str]:
    return {"stringValue": value}


@pytest.mark.parametrize(
    "levels", [33, 199, 200, 201, 253, 254, 255, 256, 700, 1_023, 1_024, 1_030]
)
@pytest.mark.parametrize("key", [ARGUMENTS, RESULT])
def test_deep_json_becomes_text(levels: int, key: str) -> None:
    held = '{"a":' * levels + "1" + "}" * levels
    made = converted(record(span({key: text(held)}), span()))
    first, _second = events(made)
    kept = first["data"]["arguments"] if key == ARGUMENTS else first["data"]["result"]["output"]
    assert kept == held
    assert not made.dead_letters


@pytest.mark.parametrize("number", [2**64, 2**70, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits_keep_their_digits(number: int) -> None:
    listed = {"kvlistValue": {"values": pairs({"id": {"intValue": str(number)}})}}
    for given_as in (listed, text(f'{{"id": {number}}}'), text(f"{{'id': {number}}}")):
        (event,) = events(converted(record(span({ARGUMENTS: given_as, RESULT: given_as}))))
        assert event["data"]["arguments"] == {"id": str(number)}
    (event,) = events(converted(record(span({RESULT: text(f"[{number}, {2**64 - 1}]")}))))
    assert event["data"]["result"]["output"] == [str(number), 2**64 - 1]


@pytest.mark.parametrize("end", [2**64, 2**84, 10**26, -5, "9" * 5_000, 1e300, [], None])
def test_invalid_times_are_left_out(end: Any) -> None:
    shown = str(end) if isinstance(end, int) else end
    (event,) = events(converted(record(span(endTimeUnixNano=shown))))
    assert event["timestamp"] == NOW - 40
    assert event["data"]["result"] == {}


@pytest.mark.parametrize(
    "odd",
    [
        {"status": {"code": []}}, {"status": {"code": {}}}, {"traceId": "é"}, {"spanId": "é"},
        {"name": {"a": 1}}, {"events": [{"name": {}, "attributes": {}}]}, {"kind": []},
    ],
)  # fmt: skip
def test_fields_of_another_type_end_nothing(odd: dict[str, Any]) -> None:
    assert len(events(converted(record(span(**odd), span())))) == 2


def test_a_record_of_any_time_is_read() -> None:
    (event,) = events(converted(record(span(startTimeUnixNano=0, endTimeUnixNano=0)), at=2**62))
    assert event["timestamp"] == LAST_MS


def test_a_span_too_large_without_its_content_is_refused_alone() -> None:
    made = converted(record(span(traceId="t" * 400_000), span()))
    assert len(events(made)) == 1
    (letter,) = made.dead_letters
    assert "1 spans: span eee19b7ec3c1b101: data: makes an event of" in letter.reason


def test_an_error_of_one_span_refuses_that_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of our own, of a kind that no known input has."""

    def broken(own: Any, *_: Any) -> Any:
        if "broken" in own:
            raise RecursionError("maximum depth")
        return real(own, *_)

    from topics.spans import episodes

    real = episodes.call_content
    monkeypatch.setattr(episodes, "call_content", broken)
    made = converted(record(span({"broken": text("x")}), span()), record(span()))
    assert made.events == 2
    assert [each.reason for each in made.dead_letters] == [
        "1 spans: span eee19b7ec3c1b101: RecursionError: maximum depth"
    ]


def nested(levels: int, kind: str) -> str:
    begin, end = ('{"a":', "}") if kind == "object" else ("[", "]")
    return begin * levels + "1" + end * levels


DEEP = st.builds(nested, st.integers(0, 1_100), st.sampled_from(["object", "list"]))
SCALAR = (
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False)
    | st.text(max_size=20) | DEEP | st.just("x" * 300_000)
)  # fmt: skip
ANY = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["content", "tool_call_id", "lc", "kwargs", "output", "name", "role"])
        | st.text(max_size=3),
        inner, max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip
KINDS = ["stringValue", "intValue", "doubleValue", "boolValue", "kvlistValue", "arrayValue", "odd"]
VALUE = (
    st.builds(lambda kind, value: {kind: value}, st.sampled_from(KINDS), ANY) | ANY
    | st.builds(lambda value: text(json.dumps(value)), ANY)
    | st.builds(lambda value: text(repr(value)), ANY)
)  # fmt: skip
KEYS = st.sampled_from([
    ARGUMENTS, RESULT, "gen_ai.tool.call.id", "gen_ai.agent.name", "user.id", "input.value",
    "session.id", "headstart.tenant", "headstart.workflow_type", "openinference.span.kind",
    "traceloop.entity.input", "langsmith.span.kind", "gen_ai.input.messages", "gen_ai.prompt",
    "error.type", "gen_ai.output.messages", "ai.response.toolCalls", "gen_ai.prompt.0.content",
])  # fmt: skip
FIELDS = st.sampled_from([
    "traceId", "spanId", "parentSpanId", "name", "kind", "status", "events", "startTimeUnixNano",
    "endTimeUnixNano",
])  # fmt: skip


def is_json(value: Any) -> bool:
    try:
        orjson.loads(json.dumps(value))
    except (orjson.JSONDecodeError, RecursionError):
        return False
    return True


@given(
    st.dictionaries(KEYS, VALUE.filter(is_json), max_size=4),
    st.dictionaries(FIELDS, ANY.filter(is_json), max_size=3),
)
def test_no_span_ends_the_worker(own: dict[str, Any], fields: dict[str, Any]) -> None:
    made = converted(record(span(own, **fields), span()), record(span()))
    assert len(events(made)) >= 2
    assert made.events + len(made.dead_letters) == 3  # an event, or a refusal
    for each in own.values():
        model_call({"gen_ai.input.messages": each, "gen_ai.output.messages": each})


def any_value(value: Any) -> AnyValue:
    if isinstance(value, dict):
        found = AnyValue()
        found.kvlist_value.SetInParent()
        for key, each in value.items():
            found.kvlist_value.values.append(KeyValue(key=key, value=any_value(each)))
        return found
    if isinstance(value, list):
        found = AnyValue()
        found.array_value.SetInParent()
        found.array_value.values.extend(map(any_value, value))
        return found
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        small = -(2**63) <= value < 2**63
        return AnyValue(int_value=value) if small else AnyValue(string_value=str(value))
    return AnyValue(**{"double_value" if isinstance(value, float) else "string_value": value})


@given(
    st.dictionaries(KEYS, ANY, max_size=4), st.binary(max_size=40), st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)  # fmt: skip
def test_no_protobuf_ends_the_worker(
    own: dict[str, Any], trace: bytes, begin: int, end: int
) -> None:
    traces = TracesData()
    spans = traces.resource_spans.add().scope_spans.add().spans
    for attributes in ({**TOOL, **own}, TOOL):
        one = spans.add(
            trace_id=trace, start_time_unix_nano=begin, end_time_unix_nano=end, name="x"
        )
        one.attributes.extend(
            KeyValue(key=key, value=any_value(each)) for key, each in attributes.items()
        )
    made = converted(traces.SerializeToString(), record(span()))
    assert len(events(made)) >= 2


@given(st.binary(max_size=200))
def test_no_bytes_end_the_worker(value: bytes) -> None:
    made = converted(b"{" + value, value, record(span()))
    assert made.events >= 1
