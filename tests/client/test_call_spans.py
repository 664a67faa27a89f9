"""Spans of tool calls: the attributes of the conventions, and what was guessed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from headstart import Scrubbing
from headstart.emitting import call_spans
from headstart.emitting.call_spans import CallSpans, GuessOutcome

CONTEXT = {"tenant": "acme", "workflow_type": "refund", "workflow_id": "w", "session_id": "c",
           "agent_id": "support", "user_id": "u", "domain": "retail"}  # fmt: skip


def _deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_call_has_the_attributes_of_the_conventions(finished: Any) -> None:
    spans = CallSpans(record_content=True)
    with spans.call("search", call_id="c1", arguments={"q": 1}, context=CONTEXT) as call:
        call.result({"found": ["a"]})
    (span,) = finished()
    assert span.name == "execute_tool search"
    assert span.kind.name == "INTERNAL"
    assert span.status.is_ok
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
        "gen_ai.tool.type": "function", "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"q":1}', "gen_ai.tool.call.result": '{"found":["a"]}',
        "gen_ai.conversation.id": "c", "gen_ai.agent.name": "support", "user.id": "u",
        "headstart.tenant": "acme", "headstart.workflow_type": "refund",
        "headstart.workflow_id": "w",
    }  # fmt: skip


def test_an_attempt_has_the_outcome_of_the_guess(finished: Any) -> None:
    outcome = GuessOutcome(confidence=0.9, threshold=0.8, hit=True, started=True, saved_ms=120.0)
    CallSpans().record("search", times_ns=(10, 30), outcome=outcome, result="not recorded")
    (span,) = finished()
    assert (span.start_time, span.end_time) == (10, 30)
    recorded_attributes = {
        key: value for key, value in span.attributes.items() if "speculation" in key
    }
    assert recorded_attributes == {
        "headstart.speculation.confidence": 0.9, "headstart.speculation.threshold": 0.8,
        "headstart.speculation.hit": True, "headstart.speculation.started": True,
        "headstart.speculation.saved_ms": 120.0,
    }  # fmt: skip
    assert "gen_ai.tool.call.result" not in span.attributes


def test_failures_are_recorded_by_their_type(finished: Any) -> None:
    with pytest.raises(TimeoutError), CallSpans().call("search"):
        raise TimeoutError("secret text")
    CallSpans().record("search", times_ns=(1, 2), error="tool_error")
    first, second = finished()
    assert [each.attributes["error.type"] for each in (first, second)] == [
        "TimeoutError", "tool_error",
    ]  # fmt: skip
    assert not first.status.is_ok
    assert not first.events
    assert "secret" not in first.to_json()


def test_content_is_scrubbed_and_bounded(finished: Any) -> None:
    spans = CallSpans(record_content=True)
    spans.record("t", times_ns=(1, 2), arguments={"password": "hunter22"}, result="x" * 100_000)
    (span,) = finished()
    assert json.loads(span.attributes["gen_ai.tool.call.arguments"]) == {"password": "[scrubbed]"}
    assert len(span.attributes["gen_ai.tool.call.result"]) == 65_536
    plain = CallSpans(record_content=True, scrub=Scrubbing("off"))
    assert plain.content({"password": "hunter22"}) == '{"password":"hunter22"}'


@pytest.mark.parametrize(
    ("recorded_attributes", "recorded"),
    [("", False), ("SPAN_ONLY", True), ("true", True), ("EVENT_ONLY", False)],
)
def test_whether_content_is_recorded(
    recorded_attributes: str, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(call_spans.CONTENT_VARIABLE, recorded_attributes)
    assert CallSpans().record_content is recorded


def test_without_opentelemetry_nothing_happens() -> None:
    program = (
        "import sys; from headstart.emitting.call_spans import CallSpans, GuessOutcome\n"
        "with CallSpans().call('t') as call: call.result(1); call.guess(GuessOutcome(hit=True))\n"
        "CallSpans().record('t', times_ns=(1, 2), error='x')\n"
        "print([name for name in sys.modules if 'opentelemetry' in name])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ({"id": 10**30}, '{"id":1000000000000000000000000000000}'),
        ({"text": "cut \ud83d"}, None),
        (_deep(2_000), None),
    ],
    ids=["a long integer", "half a surrogate pair", "deep nesting"],
)
def test_unusual_content_ends_neither_the_call_nor_its_span(
    finished: Any, value: object, recorded: str | None
) -> None:
    spans = CallSpans(record_content=True)
    with spans.call("search", arguments=value) as call:
        call.result(value)
    (span,) = finished()
    assert span.attributes.get("gen_ai.tool.call.arguments") == recorded
    assert span.attributes.get("gen_ai.tool.call.result") == recorded
