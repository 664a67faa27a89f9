"""OpenTelemetry traces as OTLP JSON: spans of tool executions, by the GenAI conventions.

A span counts whose `gen_ai.operation.name` is `execute_tool`, or whose name begins so; the tool is
`gen_ai.tool.name`. The spans of one trace are one run, in the order of their starts. The run's
domain is the service's name, its model `gen_ai.request.model` of any span of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replay.importers.runs import (
    NotOfThisForm,
    Run,
    Unmapped,
    object_of,
    objects,
    objects_of,
    run_of,
    step_of,
    text_or,
    unix_ms,
)

_ERROR = (2, "2", "STATUS_CODE_ERROR")
_EXECUTE = "execute_tool"


def otlp_runs(file: Path, unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with tool spans. Raises `NotOfThisForm` and `OSError`."""
    traces: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    models: dict[str, str] = {}
    services: dict[str, str] = {}
    found = False
    for each in objects(file, unmapped):
        groups = each.get("resourceSpans")
        if groups is None:
            unmapped.add("entries without resourceSpans")
        found = found or isinstance(groups, list)
        for group in objects_of(groups, "resourceSpans", "elements of resourceSpans", unmapped):
            resource = object_of(group.get("resource"), "resource", unmapped)
            service = text_or(_attributes(resource, unmapped).get("service.name"), "")
            for span in _spans(group, unmapped):
                _span(span, traces, models, unmapped)
                if service and (trace := text_or(span.get("traceId"), "")):
                    services.setdefault(trace, service)
    if not found:
        why = "no OTLP JSON: there is no list of resourceSpans in it"
        raise NotOfThisForm(file, why, unmapped)
    for trace, steps in traces.items():
        steps.sort(key=lambda step: step[0])
        own = [step for _, step in steps]
        yield run_of("otlp", services.get(trace), models.get(trace), trace, own)


def _spans(group: Mapping[str, Any], unmapped: Unmapped) -> Iterator[dict[str, Any]]:
    # The second is what OTLP called it before 1.0.
    scopes = group.get("scopeSpans", group.get("instrumentationLibrarySpans"))
    for scope in objects_of(scopes, "scopeSpans", "elements of scopeSpans", unmapped):
        yield from objects_of(scope.get("spans"), "lists of spans", "spans", unmapped)


def _span(
    span: Mapping[str, Any],
    traces: dict[str, list[tuple[int, dict[str, Any]]]],
    models: dict[str, str],
    unmapped: Unmapped,
) -> None:
    trace, said = text_or(span.get("traceId"), ""), _attributes(span, unmapped)
    if not trace:
        unmapped.add("spans without traceId")
        return
    if isinstance(model := said.get("gen_ai.request.model"), str):
        models.setdefault(trace, model)
    name = str(span.get("name") or "")
    if said.get("gen_ai.operation.name") != _EXECUTE and not name.startswith(_EXECUTE):
        unmapped.add("spans that execute no tool")
        return
    tool = said.get("gen_ai.tool.name") or name.removeprefix(_EXECUTE).strip()
    if not isinstance(tool, str) or not tool:
        unmapped.add("tool spans without gen_ai.tool.name")
        return
    begin, end = _ms(span.get("startTimeUnixNano")), _ms(span.get("endTimeUnixNano"))
    if begin is None:
        unmapped.add("tool spans without a start time")
        return
    error = object_of(span.get("status"), "status of spans", unmapped).get("code") in _ERROR
    traces.setdefault(trace, []).append((begin, step_of(tool, begin, end, error=error)))


def _attributes(of: Mapping[str, Any], unmapped: Unmapped) -> dict[str, Any]:
    """Return attributes by name; OTLP wraps each value in an object that names its type."""
    found = {}
    for each in objects_of(of.get("attributes"), "lists of attributes", "attributes", unmapped):
        value = each.get("value")
        if isinstance(value, dict) and len(value) == 1:
            (value,) = value.values()
        found[str(each.get("key"))] = value
    return found


def _ms(nanoseconds: Any) -> int | None:
    # OTLP writes 64-bit integers as texts; 0 stands for a time that is not known.
    try:
        return unix_ms(int(nanoseconds) // 1_000_000)
    except (TypeError, ValueError, OverflowError):
        return None
