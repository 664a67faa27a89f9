"""Exports of LangSmith and Langfuse as JSONL: tool runs and observations, one an object.

LangSmith: runs with `run_type`, `name`, `trace_id`, `start_time`, `end_time`, `error`,
`session_name`. Langfuse: observations with `type`, `name`, `traceId`, `startTime`, `endTime`,
`level`; also traces that hold their `observations`. A trace is one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.importers.runs import NotOfThisForm, Run, Unmapped, iso_ms, objects, run_of, step_of


@dataclass
class _Trace:
    steps: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    domain: object = None
    model: object = None


def langsmith_runs(file: Path, unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with tool runs. Raises `NotOfThisForm` and `OSError`."""
    traces: dict[str, _Trace] = {}
    found = False
    for each in objects(file, unmapped):
        if "run_type" not in each:
            unmapped.add("entries without run_type")
            continue
        found = True
        trace = traces.setdefault(str(each.get("trace_id") or each.get("id")), _Trace())
        trace.domain = trace.domain or each.get("session_name") or each.get("project_name")
        metadata = (each.get("extra") or {}).get("metadata") or {}
        trace.model = trace.model or metadata.get("ls_model_name")
        if each["run_type"] != "tool":
            unmapped.add(f"runs of type {each['run_type']}")
            continue
        times = each.get("start_time"), each.get("end_time")
        _step(trace, each.get("name"), times, failed=bool(each.get("error")), unmapped=unmapped)
    if not found:
        raise NotOfThisForm(f"{file}: no LangSmith export: nothing in it has a run_type")
    yield from _runs("langsmith", traces)


def langfuse_runs(file: Path, unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with tool observations. Raises `NotOfThisForm` and `OSError`."""
    traces: dict[str, _Trace] = {}
    found = False
    for each in objects(file, unmapped):
        nested = each.get("observations")
        observations = [each] if nested is None else [o for o in nested if isinstance(o, dict)]
        for observation in observations:
            if "traceId" not in observation and nested is None:
                unmapped.add("entries without traceId")
                continue
            found = True
            name = str(observation.get("traceId") or each.get("id"))
            trace = traces.setdefault(name, _Trace())
            trace.domain = trace.domain or each.get("projectId") or each.get("environment")
            trace.model = trace.model or observation.get("model")
            kind = str(observation.get("type") or "").upper()
            if kind != "TOOL":
                unmapped.add(f"observations of type {kind or 'unknown'}")
                continue
            times = observation.get("startTime"), observation.get("endTime")
            failed = observation.get("level") == "ERROR"
            _step(trace, observation.get("name"), times, failed=failed, unmapped=unmapped)
    if not found:
        raise NotOfThisForm(f"{file}: no Langfuse export: nothing in it has a traceId")
    yield from _runs("langfuse", traces)


def _step(
    trace: _Trace, tool: object, times: tuple[Any, Any], *, failed: bool, unmapped: Unmapped
) -> None:
    begin, end = _ms(times[0]), _ms(times[1])
    if not isinstance(tool, str) or not tool:
        unmapped.add("tool calls without a name")
    elif begin is None:
        unmapped.add("tool calls without a start time")
    else:
        trace.steps.append((begin, step_of(tool, begin, end, error=failed)))


def _runs(source: str, traces: Mapping[str, _Trace]) -> Iterator[Run]:
    for name, trace in traces.items():
        if trace.steps:
            trace.steps.sort(key=lambda step: step[0])
            own = [step for _, step in trace.steps]
            yield run_of(source, trace.domain, trace.model, name, own)


def _ms(value: Any) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value if value > 1e11 else value * 1000)
    return iso_ms(value)
