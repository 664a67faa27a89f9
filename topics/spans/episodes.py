"""Episodic events from spans: each finished call of a tool is a `task_complete`.

Pure. A span needs nothing of its trace, which may arrive over several records and minutes. Ids are
made of the ids of span and trace, so a span that is delivered again is the same event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from headstart.events.exact_json import dump_exactly
from headstart.events.schema import FIRST_MS, LAST_MS, MAX_EVENT_BYTES, MAX_IDENTIFIER, InvalidEvent
from headstart.events.validation import validate
from topics.spans.content import CallContent, NamedCall, by_its_name, call_content, named_calls
from topics.spans.conversation import model_call
from topics.spans.large_integers import large_integers_as_texts
from topics.spans.recognition import SpanReading, conversation_of, recognize_span, user_of
from topics.spans.records import UNEXPECTED, ReadSpan, described
from topics.spans.unwrapping import cut

OWN: Final = "headstart.speculation."
"""Attributes of spans that the client makes: its events record the same calls already."""
TENANT: Final = "headstart.tenant"
WORKFLOW_TYPE: Final = "headstart.workflow_type"
_NOT_IN_IDENTIFIERS: Final = re.compile("[\x00\x1f]")
_MOST_BYTES: Final = MAX_EVENT_BYTES - 1_024
"""Scrubbing may make an event a little longer."""
_SHORT: Final = 8_192
"""Characters of arguments and of a result in an event that would be too large."""


class SpanEvents(NamedTuple):
    """Events with their keys' parts, and why spans gave none, by their place in the record."""

    events: list[dict[str, Any]]
    refused: list[tuple[int, str]]


def episodes(spans: Sequence[ReadSpan], record_ms: int) -> SpanEvents:
    """Return the events of the spans of one record. `record_ms`: its Kafka timestamp, Unix ms."""
    events, refused = list[dict[str, Any]](), list[tuple[int, str]]()
    at = min(max(record_ms, FIRST_MS), LAST_MS)
    around = _Around(spans)
    for place, span in enumerate(spans):
        try:
            reading = recognize_span(span.name, span.attributes)
            if _is_counted(span, reading):
                events.append(_valid(_event(span, reading, around, at)))
        except UNEXPECTED as error:
            why = str(error) if isinstance(error, InvalidEvent) else described(error)
            refused.append((place, f"span {span.id[:64] or 'without id'}: {why}"))
    return SpanEvents(events, refused)


def _is_counted(span: ReadSpan, reading: SpanReading) -> bool:
    """Return whether a span is a call of its own: not another view of one, nor the client's."""
    is_second_view = reading.merged or (reading.served and span.is_server)
    return (
        reading.is_call
        and bool(reading.tool)
        and not is_second_view
        and not any(key.startswith(OWN) for key in span.attributes)
    )


class _Around:
    """The calls that other spans of the record name, for arguments that a span has bare."""

    def __init__(self, spans: Sequence[ReadSpan]) -> None:
        self._spans = spans
        self._named: dict[tuple[str, str], list[NamedCall]] | None = None

    def arguments(self, span: ReadSpan, reading: SpanReading, content: CallContent) -> Any:
        """Return the arguments of a call, None where they are not known; as text if too deep."""
        if content.arguments is not None or content.bare is None:
            return content.arguments or content.texts.get("arguments", content.arguments)
        if self._named is None:
            self._named = {}
            for each in self._spans:
                own = [*named_calls(each.attributes), *model_call(each.attributes).calls]
                self._named.setdefault((each.trace, each.id), []).extend(own)
                self._named.setdefault((each.trace, ""), []).extend(own)
        call = reading.call or content.call
        for key in ((span.trace, span.parent), (span.trace, "")):
            if found := by_its_name(content.bare, reading.tool, call, self._named.get(key, ())):
                return found.arguments
        return content.texts.get("arguments")


def _event(span: ReadSpan, reading: SpanReading, around: _Around, record_ms: int) -> dict[str, Any]:
    content = call_content(span.attributes, span.events, span.status)
    attributes, resource = span.attributes, span.resource
    conversation = conversation_of(attributes)
    at = next((t for t in (span.end, span.begin) if t and FIRST_MS <= t <= LAST_MS), record_ms)
    took = span.end - span.begin if span.end and span.begin and span.end >= span.begin else None
    output = content.texts.get("results", content.result)
    result = {"output": large_integers_as_texts(output), "execution_time_ms": took}
    if content.is_cut:
        result["output_chars"] = content.result_characters
    service = (
        attributes.get(WORKFLOW_TYPE) or resource.get(WORKFLOW_TYPE) or resource.get("service.name")
    )
    event = {
        "id": _id(span, reading, at),
        "event_type": "task_complete",
        "tenant": _identifier(attributes.get(TENANT) or resource.get(TENANT)) or "default",
        "workflow_type": _identifier(service) or "unknown",
        "workflow_id": _identifier(conversation or span.trace) or "unknown",
        "timestamp": at,
        "user_id": _identifier(user_of(attributes) or user_of(resource)),
        "agent_id": _identifier(attributes.get("gen_ai.agent.name")),
        "session_id": _identifier(conversation),
        "tool_id": _identifier(reading.tool),
        "success": not (span.failed or content.failed),
        "data": {
            "arguments": large_integers_as_texts(around.arguments(span, reading, content)),
            "result": {key: value for key, value in result.items() if value is not None},
            "call_id": reading.call or content.call or None,
            "span": {"trace_id": span.trace, "span_id": span.id, "parent_id": span.parent},
        },
    }
    return {key: value for key, value in event.items() if value is not None}


def _valid(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event within the contract's limits; content that breaks them becomes short text.

    Raises `InvalidEvent` where other fields break them.
    """
    try:
        if _size(event) <= _MOST_BYTES:
            return event
    except (InvalidEvent, TypeError):
        pass
    data = event["data"]
    result = dict(data["result"])
    for of, key in ((data, "arguments"), (result, "output")):
        if of.get(key) is not None:
            of[key] = cut(dump_exactly(of[key]).decode(), _SHORT).value
    data["result"] = result
    if (size := _size(event)) > _MOST_BYTES:
        raise InvalidEvent("data", f"makes an event of {size:,} bytes; {_MOST_BYTES:,} fit")
    return event


def _size(event: dict[str, Any]) -> int:
    """Return the bytes of a valid event as JSON. Raises `InvalidEvent`."""
    validate(event)
    return len(orjson.dumps(event))


def _id(span: ReadSpan, reading: SpanReading, at: int) -> str:
    """Return a UUID of version 7's layout: the time, then bits of what identifies the span."""
    own = span.id or orjson.dumps([span.name, span.begin, reading.call]).decode()
    digest = blake2b(f"{span.trace}\0{own}".encode(), digest_size=10).digest()
    number = int.from_bytes(at.to_bytes(6, "big") + digest, "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    return str(UUID(int=number & ~(0x3 << 62) | 0x2 << 62))


def _identifier(value: object) -> str | None:
    if not isinstance(value, str | int) or value == "":
        return None
    return _NOT_IN_IDENTIFIERS.sub(" ", str(value))[:MAX_IDENTIFIER]
