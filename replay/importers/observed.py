"""Exports of LangSmith and Langfuse as JSONL: tool runs and observations, one an object.

LangSmith: runs with `run_type`, `name`, `trace_id`, `start_time`, `end_time`, `error`,
`session_name`. Langfuse: observations with `type`, `name`, `traceId`, `startTime`, `endTime`,
`level`, as its API has them, or with `trace_id`, `start_time`, `end_time`, as its export to blob
storage has them; also traces that hold their `observations`. A trace is one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.importers.runs import (
    NotOfThisForm,
    Run,
    Unmapped,
    iso_ms,
    object_of,
    objects,
    objects_of,
    run_of,
    step_of,
    text_or,
    unix_ms,
)


@dataclass
class _Trace:
    steps: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    domain: str = ""
    model: str = ""


def langsmith_runs(file: Path, unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with tool runs. Raises `NotOfThisForm` and `OSError`."""
    traces: dict[str, _Trace] = {}
    found = False
    for each in objects(file, unmapped):
        if "run_type" not in each:
            unmapped.add("entries without run_type")
            continue
        found = True
        name = _text(each, "trace_id", "id")
        if not name:
            unmapped.add("runs without trace_id")
            continue
        trace = traces.setdefault(name, _Trace())
        trace.domain = trace.domain or _text(each, "session_name", "project_name")
        extra = object_of(each.get("extra"), "extra", unmapped)
        metadata = object_of(extra.get("metadata"), "extra.metadata", unmapped)
        trace.model = trace.model or _text(metadata, "ls_model_name")
        kind = _text(each, "run_type").lower()
        if kind != "tool":
            unmapped.add(f"runs of type {kind or 'unknown'}")
            continue
        times = each.get("start_time"), each.get("end_time")
        _step(trace, each.get("name"), times, failed=bool(each.get("error")), unmapped=unmapped)
    if not found:
        raise NotOfThisForm(file, "no LangSmith export: nothing in it has a run_type", unmapped)
    yield from _runs("langsmith", traces)


def langfuse_runs(file: Path, unmapped: Unmapped) -> Iterator[Run]:
    """Yield a run for each trace with tool observations. Raises `NotOfThisForm` and `OSError`."""
    traces: dict[str, _Trace] = {}
    found = False
    for each in objects(file, unmapped):
        nested = each.get("observations")
        if nested is None:
            observations, own = iter([each]), ""
        else:
            found = found or isinstance(nested, list)
            observations = objects_of(nested, "lists of observations", "observations", unmapped)
            own = _text(each, "id")
        for observation in observations:
            name = _text(observation, "traceId", "trace_id") or own
            if not name:
                unmapped.add("entries without traceId")
                continue
            found = True
            trace = traces.setdefault(name, _Trace())
            trace.domain = trace.domain or _text(each, "projectId", "project_id", "environment")
            _observed(observation, trace, unmapped)
    if not found:
        why = "no Langfuse export: nothing in it has a traceId or trace_id"
        raise NotOfThisForm(file, why, unmapped)
    yield from _runs("langfuse", traces)


def _observed(observation: Mapping[str, Any], trace: _Trace, unmapped: Unmapped) -> None:
    model = _text(observation, "model", "providedModelName", "provided_model_name")
    trace.model = trace.model or model
    kind = _text(observation, "type").upper()
    if kind != "TOOL":
        unmapped.add(f"observations of type {kind or 'unknown'}")
        return
    begin = _said(observation, "startTime", "start_time")
    times = begin, _said(observation, "endTime", "end_time")
    failed = observation.get("level") == "ERROR"
    _step(trace, observation.get("name"), times, failed=failed, unmapped=unmapped)


def _said(entry: Mapping[str, Any], *names: str) -> Any:
    """Return what an entry says under the first of these names that it has, else None."""
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _text(entry: Mapping[str, Any], *names: str) -> str:
    """Return the first text that an entry has under one of these names, else none."""
    return next((text for name in names if (text := text_or(entry.get(name), ""))), "")


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
        return unix_ms(value if value > 1e11 else value * 1000)
    return iso_ms(value)
