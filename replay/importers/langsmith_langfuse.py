"""Exports of LangSmith and Langfuse: tool runs and observations, as JSON, JSONL or CSV.

LangSmith: runs with `run_type`, `name`, `trace_id`, `start_time`, `end_time`, `error`,
`session_name`, alone, in `runs`, or one in the other as `child_runs`. Langfuse: observations with
`type`, `name`, `traceId`, `startTime`, `endTime`, `level`, as its API has them (also its pages,
`data` and `meta`), or with `trace_id`, `start_time`, `end_time`, as its export to blob storage has
them; also traces that hold their `observations`, and downloads from its pages (`trace` beside
`observations`). A trace is one run, and so are all traces of a session of Langfuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from replay.importers.agent_runs import (
    Run,
    Unmapped,
    clock_ms,
    files_of,
    object_of,
    objects,
    objects_of,
    refuse,
    text_or,
)
from replay.importers.calls import Spans
from replay.importers.span import Span
from topics.spans.content import (
    LONGEST_ERROR,
    CallContent,
    call_content,
    content_of,
    named_calls,
)
from topics.spans.conversation import model_call, read_messages
from topics.spans.recognition import (
    SpanReading,
    conversation_of,
    recognize_span,
    tool_named_by,
    user_of,
)
from topics.spans.storable import read_json

_MOST_LEVELS: Final = 200
_RUN_STEPS: Final = frozenset(("llm", "chain", "retriever", "prompt", "parser", "embedding"))
_OBSERVED_STEPS: Final = frozenset(("AGENT", "GENERATION", "CHAIN", "RETRIEVER", "EMBEDDING"))


def langsmith_runs(files: Path | Iterable[Path], unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with tool runs, over all files.

    Raises `NotOfThisForm`, `CannotRead` and `OSError`.
    """
    spans = Spans("tool runs", unmapped)
    for file in files_of(files):
        found = False
        for each in objects(file, unmapped):
            inner = each.get("runs")
            if "run_type" not in each and isinstance(inner, list):
                found, runs = True, objects_of(inner, "runs", "runs", unmapped)
            elif "run_type" in each:
                found, runs = True, iter([each])
            else:
                unmapped.add("entries without run_type")
                continue
            for run in runs:
                _with_children(run, {}, spans, unmapped)
        if not found:
            refuse(file, "no LangSmith export: nothing in it has a run_type", unmapped)
    yield from spans.runs("langsmith")


def _with_children(
    run: Mapping[str, Any], above: Mapping[str, Any], spans: Spans, unmapped: Unmapped
) -> None:
    """Add a run and those inside it; fields that they lack are taken from the one above."""
    waiting = [(run, above, 0)]
    while waiting:
        each, outer, level = waiting.pop()
        inherited = {
            "trace_id": _text(each, "trace_id") or _text(outer, "trace_id") or _text(each, "id"),
            "parent_run_id": _text(each, "parent_run_id") or _text(outer, "id"),
            "session_name": _text(each, "session_name", "project_name")
            or _text(outer, "session_name"),
        }
        own = {**each, **inherited}
        _smith(own, spans, unmapped)
        if level < _MOST_LEVELS:
            children = objects_of(each.get("child_runs"), "child_runs", "child_runs", unmapped)
            waiting += [(child, own, level + 1) for child in reversed([*children])]


def _smith(run: Mapping[str, Any], spans: Spans, unmapped: Unmapped) -> None:
    name = _text(run, "trace_id")
    if not name:
        unmapped.add("runs without trace_id")
        return
    trace = spans.trace(name)
    trace.domain = trace.domain or _text(run, "session_name")
    extra = object_of(run.get("extra"), "extra", unmapped)
    metadata = object_of(extra.get("metadata"), "extra.metadata", unmapped)
    trace.model = trace.model or _text(metadata, "ls_model_name")
    kind = _text(run, "run_type").lower()
    span = Span(
        name, _text(run, "id"), _text(run, "parent_run_id"), step=kind in _RUN_STEPS,
        error=bool(run.get("error")) or run.get("status") == "error",
        order=_text(run, "dotted_order"),
    )  # fmt: skip
    _set_times(span, run.get("start_time"), run.get("end_time"))
    given, answer = run.get("inputs"), run.get("outputs")
    if kind == "tool":
        _call(span, run.get("name"), unmapped)
        error = run.get("error") or None
        message = error[:LONGEST_ERROR] if isinstance(error, str) else error
        span.content = content_of(given, answer or message, "input")
    else:
        unmapped.add(f"runs of type {kind or 'unknown'}")
        unmapped.kinds[kind or "unknown"] += 1
        span.is_model, span.named = kind == "llm", named_calls({"input.value": given})
        span.messages = read_messages(given, answer) if kind == "llm" else None
    spans.add(span)


def langfuse_runs(
    files: Path | Iterable[Path], unmapped: Unmapped, *, spans_are_calls: bool = False
) -> Iterator[Run]:
    """Yield a run for each trace with tool observations, over all files.

    `spans_are_calls`: so are observations of type SPAN with none inside them, as Langfuse had them
    before it had the type TOOL. Raises `NotOfThisForm`, `CannotRead` and `OSError`.
    """
    spans = Spans("tool observations", unmapped)
    for file in files_of(files):
        found = False
        for entry in objects(file, unmapped):
            for each in _unpacked(entry, unmapped):
                found = _fuse(each, spans, unmapped, spans_are_calls) or found
        if not found:
            why = "no Langfuse export: nothing in it has a traceId or trace_id"
            refuse(file, why, unmapped)
    yield from spans.runs("langfuse")


def _unpacked(entry: Mapping[str, Any], unmapped: Unmapped) -> Iterator[Mapping[str, Any]]:
    """Yield what a page of the API or a session holds, else the entry itself."""
    if isinstance(entry.get("traces"), list) and not _text(entry, "traceId", "trace_id"):
        session = _text(entry, "id")
        for trace in objects_of(entry["traces"], "traces", "elements of traces", unmapped):
            yield {"sessionId": session, **trace}
        return
    data = entry.get("data")
    if isinstance(data, dict):
        data = [data]
    if isinstance(data, list) and not _text(entry, "traceId", "trace_id"):
        yield from objects_of(data, "data", "elements of data", unmapped)
    else:
        yield entry


def _fuse(
    entry: Mapping[str, Any], spans: Spans, unmapped: Unmapped, spans_are_calls: bool
) -> bool:
    """Add an observation, or those of a trace; return whether it is either."""
    nested, above = entry.get("observations"), object_of(entry.get("trace"), "trace", unmapped)
    if nested is None:
        if _bare_trace(entry, spans):
            return True
        observations, own = iter([entry]), ""
    else:
        observations = objects_of(nested, "lists of observations", "observations", unmapped)
        own = _text(above, "id") or _text(entry, "id")
    found = isinstance(nested, list)
    for each in observations:
        name = _text(each, "traceId", "trace_id", "Trace ID") or own
        if not name:
            unmapped.add("entries without traceId")
            continue
        found = True
        trace = spans.trace(name)
        if session := _session(each) or _session(entry) or _session(above):
            trace.conversations[session] = None
        if user := _user(each) or _user(entry) or _user(above):
            trace.users[user] = None
        whose = ("projectId", "project_id", "environment")
        trace.domain = trace.domain or _text(entry, *whose) or _text(above, *whose)
        model = _text(each, "model", "providedModelName", "provided_model_name")
        trace.model = trace.model or model
        _observed(each, name, spans, unmapped, spans_are_calls)
    return found


def _observed(
    each: Mapping[str, Any], trace: str, spans: Spans, unmapped: Unmapped, spans_are_calls: bool
) -> None:
    kind = _text(each, "type").upper()
    above = _text(each, "parentObservationId", "parent_observation_id")
    span = Span(
        trace, _text(each, "id"), above, step=kind in _OBSERVED_STEPS,
        error=_text(each, "level").upper() == "ERROR",
    )  # fmt: skip
    name, reading = each.get("name"), _reading_of_metadata(each)
    tool = tool_named_by(name) if kind == "TOOL" and isinstance(name, str) else name
    if reading is not None and reading.is_call and reading.tool and not reading.merged:
        kind, tool = "TOOL", reading.tool
        span.call, span.guessed = reading.call, reading.guessed
    _set_times(
        span, _value(each, "startTime", "start_time"), _value(each, "endTime", "end_time")
    )  # fmt: skip
    given, answer = each.get("input"), each.get("output")
    if kind == "TOOL" or (kind == "SPAN" and spans_are_calls):
        _call(span, tool, unmapped)
        span.content = _observed_content(each, given, answer)
        if kind == "SPAN":
            span.tool, span.leaf = "", span.tool
    else:
        unmapped.add(f"observations of type {kind or 'unknown'}")
        unmapped.kinds[kind or "unknown"] += 1
        span.is_model = kind == "GENERATION" or (reading is not None and reading.is_model)
        span.named = named_calls({"input.value": given})
        span.messages = read_messages(given, answer) if span.is_model else None
        if span.messages is not None and not (span.messages.given or span.messages.calls):
            span.messages = model_call(_attributes(each) or {})
    spans.add(span)


def _observed_content(each: Mapping[str, Any], given: Any, answer: Any) -> CallContent:
    """Return a call's content: that of its attributes, else its input and output."""
    message = _text(each, "statusMessage", "status_message")[:LONGEST_ERROR] or None
    found = content_of(given, answer if answer is not None else message)
    # Of some producers, Langfuse shows empty objects as input and output.
    own = call_content(_attributes(each) or {})
    arguments = own.arguments if own.arguments is not None else found.arguments
    kept = own if own.result is not None else found
    is_whole = arguments is not None and kept.result is not None
    left_out = () if is_whole else tuple(dict.fromkeys((*own.left_out, *found.left_out)))
    return kept._replace(arguments=arguments, bare=own.bare or found.bare, left_out=left_out)


def _reading_of_metadata(each: Mapping[str, Any]) -> SpanReading | None:
    """Return the kind of a span that came by OpenTelemetry, whose attributes are in metadata."""
    attributes = _attributes(each)
    return recognize_span(_text(each, "name"), attributes) if attributes is not None else None


def _bare_trace(entry: Mapping[str, Any], spans: Spans) -> bool:
    """Record the session of a trace without observations; return whether it is one."""
    name, session = _text(entry, "id"), _session(entry)
    if not (name and session) or _text(entry, "type", "traceId", "trace_id", "Trace ID"):
        return False
    trace = spans.trace(name)
    trace.conversations[session] = None
    if user := _user(entry):
        trace.users[user] = None
    return True


def _session(entry: Mapping[str, Any]) -> str:
    """Return the session that an observation or a trace names; "" for none."""
    if session := _own_or_of_trace(entry, "sessionId", "session_id", "Session ID"):
        return session
    attributes = _attributes(entry) or {}
    return conversation_of(attributes) or _text(attributes, "session.id")


def _user(entry: Mapping[str, Any]) -> str:
    """Return the user that an observation or a trace names; "" for none."""
    user = _own_or_of_trace(entry, "userId", "user_id", "User ID")
    return user or user_of(_attributes(entry) or {})


def _own_or_of_trace(entry: Mapping[str, Any], *names: str) -> str:
    """Return a text of an entry, else of the trace within it; `names`: the last is the entry's."""
    inner = entry.get("trace")
    return _text(entry, *names) or (_text(inner, *names[:-1]) if isinstance(inner, dict) else "")


def _attributes(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the attributes of an entry that came by OpenTelemetry, in its metadata, or None."""
    metadata = entry.get("metadata")
    if isinstance(metadata, str):
        try:
            metadata = read_json(metadata)
        except orjson.JSONDecodeError:
            return None
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    return attributes if isinstance(attributes, dict) else None


def _value(entry: Mapping[str, Any], *names: str) -> Any:
    """Return an entry's value under the first of these names that it has, else None."""
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _text(entry: Mapping[str, Any], *names: str) -> str:
    """Return the first text that an entry has under one of these names, else ""."""
    return next((text for name in names if (text := text_or(entry.get(name), ""))), "")


def _set_times(span: Span, begin: Any, end: Any) -> None:
    span.begin, span.end = clock_ms(begin), clock_ms(end)


def _call(span: Span, tool: object, unmapped: Unmapped) -> None:
    """Make a span a call, if it has a name and a start."""
    if not isinstance(tool, str) or not tool:
        unmapped.add("tool calls without a name")
    elif span.begin is None:
        unmapped.add("tool calls without a start time")
    else:
        span.tool = tool
