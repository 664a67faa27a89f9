"""OpenTelemetry traces: calls of tools among the spans, by the attributes of `topics.spans`.

Read are OTLP JSON (camelCase, snake_case, of before 1.0, ids in base64), what Tempo and Jaeger put
around it, bare `resourceSpans` elements a line, Jaeger's own JSON, and what the SDKs' console
exporters print. Calls of one conversation, else of one trace, are one run, in the order of their
starts. The run's domain is the service's name, its model that of any span of the trace.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from headstart.events.schema import FIRST_MS, LAST_MS
from headstart.events.validation import UNITS
from replay.importers.agent_runs import (
    Run,
    Unmapped,
    clock_ms,
    files_of,
    list_of,
    object_of,
    objects,
    objects_of,
    refuse,
    text_or,
    unix_ms,
)
from replay.importers.calls import Spans
from replay.importers.span import Span
from topics.spans.attributes import attribute_value
from topics.spans.content import call_content, named_calls
from topics.spans.conversation import model_call
from topics.spans.recognition import conversation_of, model_of, recognize_span, user_of

_ERROR: Final = frozenset(("2", "STATUS_CODE_ERROR", "ERROR"))
_GROUPS: Final = ("resourceSpans", "resource_spans", "batches")
_SCOPES: Final = (
    "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans",
)  # fmt: skip
_AGENTS: Final = frozenset(("invoke_agent", "agent"))
_AROUND: Final = ("data", "result", "trace")
"""Keys under which services wrap their answers."""
_PER_MS: Final = {"microseconds": 1_000, "nanoseconds": 1_000_000}
_HEX: Final = re.compile(r"(?:0x)?([0-9a-fA-F]+)")

Found = tuple[Mapping[str, Any], str]
"""A span and its service's name."""


def otlp_runs(files: Path | Iterable[Path], unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with calls of tools, over all files.

    Raises `NotOfThisForm`, `CannotRead` and `OSError`.
    """
    spans = Spans("tool spans", unmapped)
    for file in files_of(files):
        found = False
        for each in objects(file, unmapped):
            for span, service in _spans_of(each, unmapped):
                found = True
                if span:
                    _add(span, service, spans, unmapped)
        if not found:
            why = "no OTLP JSON: there is no list of resourceSpans in it"
            refuse(file, why, unmapped)
    yield from spans.runs("otlp")


def _spans_of(entry: Mapping[str, Any], unmapped: Unmapped) -> Iterator[Found]:
    """Yield the spans of a document; an empty one if it has the form, but no span."""
    if groups := [entry[key] for key in _GROUPS if key in entry]:
        if isinstance(groups[0], list):
            yield {}, ""
        for group in objects_of(groups[0], "resourceSpans", "elements of resourceSpans", unmapped):
            yield from _of_resource(group, unmapped)
    elif any(key in entry for key in _SCOPES):
        yield {}, ""
        yield from _of_resource(entry, unmapped)
    elif isinstance(entry.get("spans"), list) and ("processes" in entry or "traceID" in entry):
        yield {}, ""
        yield from _of_jaeger(entry, unmapped)
    elif _is_bare(entry):
        resource = object_of(entry.get("resource"), "resource", unmapped)
        yield entry, _service(resource, unmapped)
    elif inner := next(
        (entry[key] for key in _AROUND if isinstance(entry.get(key), dict | list)), None
    ):
        for each in inner if isinstance(inner, list) else [inner]:
            if isinstance(each, dict):
                yield from _spans_of(each, unmapped)
    else:
        unmapped.add("entries without resourceSpans")


def _is_bare(entry: Mapping[str, Any]) -> bool:
    """Return whether an object is a single span, as console exporters print it."""
    ids = entry if "attributes" in entry else {}
    context = ids.get("context")
    return "name" in ids and bool(
        _first(ids, "traceId", "trace_id")
        or (isinstance(context, dict) and context.get("trace_id"))
    )


def _of_resource(group: Mapping[str, Any], unmapped: Unmapped) -> Iterator[Found]:
    resource = object_of(group.get("resource"), "resource", unmapped)
    service, scopes = _service(resource, unmapped), _first(group, *_SCOPES)
    for scope in objects_of(scopes, "scopeSpans", "elements of scopeSpans", unmapped):
        for span in objects_of(scope.get("spans"), "lists of spans", "spans", unmapped):
            yield span, service


def _of_jaeger(trace: Mapping[str, Any], unmapped: Unmapped) -> Iterator[Found]:
    processes = object_of(trace.get("processes"), "processes", unmapped)
    for span in objects_of(trace["spans"], "lists of spans", "spans", unmapped):
        process = processes.get(str(span.get("processID")))
        yield span, text_or(process.get("serviceName"), "") if isinstance(process, dict) else ""


def _service(resource: Mapping[str, Any], unmapped: Unmapped) -> str:
    return text_or(_attributes(resource.get("attributes"), unmapped).get("service.name"), "")


def _add(span: Mapping[str, Any], service: str, spans: Spans, unmapped: Unmapped) -> None:
    context = span.get("context")
    ids = {**context, **span} if isinstance(context, dict) else span
    trace = _id(_first(ids, "traceId", "trace_id", "traceID"), 16)
    if not trace:
        unmapped.add("spans without traceId")
        return
    attributes = _attributes(_first(span, "attributes", "tags"), unmapped)
    known = spans.trace(trace)
    known.domain = known.domain or service
    known.model = known.model or model_of(attributes)
    if conversation := conversation_of(attributes):
        known.conversations[conversation] = None
    if user := user_of(attributes):
        known.users[user] = None
    name = text_or(_first(span, "name", "operationName"), "")
    begin, end, reversed_, wrong = _times(span)
    reading = recognize_span(name, attributes)
    made = Span(
        trace, _id(_first(ids, "spanId", "span_id", "spanID"), 8), _parent(span, unmapped),
        begin=begin, end=end, step=reading.is_step, served=reading.served, call=reading.call,
        error=_failed(span, attributes, unmapped), is_model=reading.is_model,
        guessed=reading.guessed,
        order=str(_whole(_first(span, "startTimeUnixNano", "start_time_unix_nano")) or ""),
    )  # fmt: skip
    if not reading.is_call:
        unmapped.add("spans that execute no tool")
        unmapped.kinds[reading.kind or "no kind"] += 1
        made.named = named_calls(attributes)
        if reading.is_model or reading.kind in _AGENTS:
            made.messages = model_call(attributes)
    elif reading.merged:
        unmapped.add("tool spans that sum up calls made side by side")
    elif not reading.tool:
        unmapped.add("tool spans without gen_ai.tool.name")
    elif begin is None:
        unmapped.add(wrong[0] if wrong else "tool spans without a start time")
    else:
        made.tool = reading.tool
        made.content = call_content(attributes, _events(span, unmapped), _status_message(span))
        if wrong:
            unmapped.add(wrong[0])
        if reversed_:
            unmapped.add("ends of tool spans before their start")
    spans.add(made)


def _failed(span: Mapping[str, Any], attributes: Mapping[str, Any], unmapped: Unmapped) -> bool:
    status = span.get("status")
    if isinstance(status, str):  # as some console exporters print it
        code: Any = status.upper()
    else:
        code = _first(object_of(status, "status of spans", unmapped), "code", "status_code")
    return (
        str(code) in _ERROR
        or bool(attributes.get("error.type"))
        or attributes.get("otel.status_code") == "ERROR"
        or attributes.get("error") in (True, "true")
    )


def _status_message(span: Mapping[str, Any]) -> str:
    status = span.get("status")
    message = _first(status, "message", "description") if isinstance(status, dict) else None
    return message.strip() if isinstance(message, str) else ""


def _events(span: Mapping[str, Any], unmapped: Unmapped) -> list[dict[str, Any]]:
    """Return the events of a span, which are other instrumentations' messages and exceptions."""
    events = span.get("events")
    return [
        {"name": each.get("name"), "attributes": _attributes(each.get("attributes"), unmapped)}
        for each in (events if isinstance(events, list) else ())
        if isinstance(each, dict)
    ]


def _times(span: Mapping[str, Any]) -> tuple[int | None, int | None, bool, list[str]]:
    """Return begin and end in Unix ms, whether an end was before the begin, and which of
    both is not a time in the unit of its field."""
    wrong: list[str] = []
    if "operationName" in span:
        started = span.get("startTime")
        begin = _at(started, "microseconds", "start times", wrong)
        lasted = _whole(span.get("duration"))
        if begin is None or lasted is None:
            return begin, None, False, wrong
        end = unix_ms((int(started) + lasted) // 1000)  # type: ignore[arg-type]
        return begin, end, lasted < 0, wrong
    nanos = [
        _first(span, f"{name}TimeUnixNano", f"{name}_time_unix_nano") for name in ("start", "end")
    ]
    begin = _at(nanos[0], "nanoseconds", "start times", wrong)
    if begin is None and nanos[0] is None:
        begin = clock_ms(_first(span, "start_time", "startTime"))
        end = clock_ms(_first(span, "end_time", "endTime"))
        return begin, end, False, wrong  # `Spans` detects reversed times
    reversed_ = 0 < (_whole(nanos[1]) or 0) < (_whole(nanos[0]) or 0)
    end = _at(nanos[1], "nanoseconds", "end times", [] if reversed_ else wrong)
    # `Spans` cannot detect a reversed end that is not a time.
    return begin, end, end is None and begin is not None and reversed_, wrong


def _at(value: Any, unit: str, which: str, wrong: list[str]) -> int | None:
    """Return a time in Unix ms, None if there is none; `wrong` gets why a value is invalid."""
    number = _whole(value)
    if number is None:
        if value is not None:
            wrong.append(f"{which} of tool spans that are not a number of {unit}")
        return None
    if number == 0:
        return None
    per_ms = _PER_MS[unit]
    if FIRST_MS * per_ms <= number < (LAST_MS + 1) * per_ms:
        return number // per_ms
    for other, (first, last) in UNITS.items():
        if other != unit and first <= number <= last:
            wrong.append(f"{which} of tool spans that read as {other}, not as {unit}")
            return None
    wrong.append(f"{which} of tool spans that are before the year 2000 or after 9999")
    return None


def _whole(number: Any) -> int | None:
    # OTLP writes 64-bit integers as texts; 0 means an unknown time.
    if isinstance(number, bool):
        return None
    try:
        return int(number)
    except (TypeError, ValueError, OverflowError):
        return None


def _parent(span: Mapping[str, Any], unmapped: Unmapped) -> str:
    if "references" in span:
        above = objects_of(span["references"], "references", "references", unmapped)
        return next((_id(each.get("spanID"), 8) for each in above), "")
    return _id(_first(span, "parentSpanId", "parent_span_id", "parentSpanID", "parent_id"), 8)


def _id(value: Any, size: int) -> str:
    """Return an id in hex, lower case, however it is written; `size`: its bytes."""
    text = text_or(value, "")
    if found := _HEX.fullmatch(text):
        return found[1].lower()
    if len(text) == -(-size // 3) * 4:
        try:
            return base64.b64decode(text, validate=True).hex()
        except binascii.Error:
            return text
    return text


def _first(of: Mapping[str, Any], *names: str) -> Any:
    """Return the first value that is there under one of these names, else None."""
    return next((of[name] for name in names if of.get(name) is not None), None)


def _attributes(pairs: Any, unmapped: Unmapped) -> dict[str, Any]:
    """Return attributes by name; OTLP wraps each value in an object that names its type."""
    if isinstance(pairs, dict):
        return pairs
    found = {}
    named = list_of(pairs, "lists of attributes", unmapped)
    for each in objects_of(named, "lists of attributes", "attributes", unmapped):
        found[str(each.get("key"))] = attribute_value(each.get("value"))
    return found
