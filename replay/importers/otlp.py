"""OpenTelemetry traces as OTLP JSON: spans of tool executions, by the GenAI conventions.

A span counts whose `gen_ai.operation.name` is `execute_tool`, or whose name begins so; the tool is
`gen_ai.tool.name`. The spans of one trace are one run, in the order of their starts. The run's
domain is the service's name, its model `gen_ai.request.model` of any span of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replay.importers.runs import NotOfThisForm, Run, Unmapped, objects, run_of, step_of

_ERROR = (2, "2", "STATUS_CODE_ERROR")
_EXECUTE = "execute_tool"


def otlp_runs(file: Path, unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with tool spans. Raises `NotOfThisForm` and `OSError`."""
    traces: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    models: dict[str, str] = {}
    services: dict[str, str] = {}
    found = False
    for each in objects(file, unmapped):
        for group in each.get("resourceSpans") or ():
            found = True
            service = _attributes(group.get("resource") or {}).get("service.name")
            for scope in group.get("scopeSpans") or group.get("instrumentationLibrarySpans") or ():
                for span in scope.get("spans") or ():
                    _span(span, traces, models, unmapped)
                    services.setdefault(str(span.get("traceId")), str(service or "unknown"))
    if not found:
        raise NotOfThisForm(f"{file}: no OTLP JSON: there is no resourceSpans in it")
    for trace, steps in traces.items():
        steps.sort(key=lambda step: step[0])
        own = [step for _, step in steps]
        yield run_of("otlp", services.get(trace), models.get(trace), trace, own)


def _span(
    span: Mapping[str, Any],
    traces: dict[str, list[tuple[int, dict[str, Any]]]],
    models: dict[str, str],
    unmapped: Unmapped,
) -> None:
    trace, said = str(span.get("traceId")), _attributes(span)
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
    error = (span.get("status") or {}).get("code") in _ERROR
    traces.setdefault(trace, []).append((begin, step_of(tool, begin, end, error=error)))


def _attributes(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes by name; OTLP wraps each value in an object that names its type."""
    found = {}
    for each in of.get("attributes") or ():
        value = each.get("value")
        if isinstance(value, dict) and len(value) == 1:
            (value,) = value.values()
        found[str(each.get("key"))] = value
    return found


def _ms(nanoseconds: Any) -> int | None:
    try:
        return int(nanoseconds) // 1_000_000
    except (TypeError, ValueError):
        return None
