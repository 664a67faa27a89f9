"""Reads agent runs from a file, one per line, and checks each field (docs/reference/files.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from demo.step_content import InvalidContent, run_content, step_content
from headstart.events.schema import FIRST_MS, LAST_MS
from replay.files.json_lines import json_lines
from replay.files.times import LONGEST_CALL_MS, iso_ms, refuse_other_units
from topics.spans.storable import may_hold_surrogates, repaired_texts

END: Final = "<end>"
"""The next tool at the end of a run; never a tool's name."""
_RELATIVE_MS: Final = FIRST_MS // 1000
"""Times below are relative to some start; from here on a number may be Unix seconds."""


class TraceError(ValueError):
    """A line of the file is not a run; the message names the file, the line and the reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call; both times in Unix milliseconds, None where the source has none."""

    tool: str
    called_at: int | None = None
    returned_at: int | None = None
    error: bool = False


@dataclass(frozen=True, slots=True)
class TraceRun:
    """One agent's run: its model, task (and repetition), and calls.

    `started_at`: Unix milliseconds, None where the source has no time; `run_id`: None for none.
    `content`: of each step what the demo does not use (`step_content`), and of the run the
    messages after its last step; empty unless requested.
    """

    source: str
    domain: str
    agent_model: str
    task_id: str
    trial: int | None
    steps: tuple[Step, ...]
    started_at: int | None = None
    run_id: str | None = None
    content: tuple[Mapping[str, object], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A skipped line; `line_number` counts from 1."""

    line_number: int
    reason: str


def read_runs(
    path: str | PathLike[str],
    on_broken: Callable[[BrokenLine], object] | None = None,
    *,
    with_content: bool = False,
) -> Iterator[TraceRun]:
    """Yield the runs of a file in its order: JSONL, or CSV with a row per call.

    Skips empty lines. `path`: as `replay.files.input.local_file` returns it;
    `with_content`: whether runs keep arguments, results and messages.

    A broken line (not JSON, a field missing or of the wrong type) is passed to `on_broken` and
    skipped; without `on_broken` it raises `TraceError`. A file that cannot be opened raises
    `OSError` at the first `next`.
    """
    # Bytes, because text mode gives up on the whole file at one wrong byte.
    with json_lines(Path(path)) as lines:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                yield _run(line, with_content)
            except _Broken as broken:
                # Of CSV a run is several lines: the one of the step that is wrong is named.
                at = number
                if broken.step is not None and broken.step < len(lines.step_lines):
                    at = lines.step_lines[broken.step]
                if on_broken is None:
                    message = f"{path}, line {at}: {broken}; fix it or skip broken lines"
                    raise TraceError(message) from broken
                on_broken(BrokenLine(at, str(broken)))


class _Broken(Exception):
    """Why a line is not a run. `step`: the index of the invalid step, None for another field."""

    def __init__(self, reason: str, step: int | None = None) -> None:
        super().__init__(reason)
        self.step = step


def _run(line: bytes, with_content: bool = False) -> TraceRun:
    try:
        text = line.decode()
        record = json.loads(text)
        if may_hold_surrogates(text):
            record = repaired_texts(record)
    except (ValueError, RecursionError) as error:
        raise _Broken(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise _Broken(f"a run must be an object, not {type(record).__name__}")
    started_at, steps = _time(record, "started_at"), _steps(record)
    _check_times(started_at, steps)
    return TraceRun(
        source=_text(record, "source"),
        domain=_text(record, "domain"),
        agent_model=_text(record, "agent_model"),
        task_id=_text(record, "task_id"),
        trial=_optional_int({"trial": None, **record}, "trial"),
        steps=steps,
        started_at=started_at,
        run_id=_run_id(record),
        content=_content(record) if with_content else (),
    )


def _content(record: Mapping[str, Any]) -> tuple[Mapping[str, object], ...]:
    found = list[Mapping[str, object]]()
    for index, step in enumerate(record["steps"]):
        try:
            found.append(step_content(step, f"steps[{index}]"))
        except InvalidContent as invalid:
            raise _Broken(str(invalid), index) from invalid
    try:
        return (*found, run_content(record))
    except InvalidContent as invalid:
        raise _Broken(str(invalid)) from invalid


def _steps(record: Mapping[str, object]) -> tuple[Step, ...]:
    steps = _field(record, "steps")
    if not isinstance(steps, list):
        raise _Broken(f"steps must be a list, not {type(steps).__name__}")
    return tuple(_numbered_step(step, index) for index, step in enumerate(steps))


def _numbered_step(step: object, index: int) -> Step:
    try:
        return _step(step, f"steps[{index}]")
    except _Broken as broken:
        raise _Broken(str(broken), index) from broken


def _step(step: object, where: str) -> Step:
    if not isinstance(step, dict):
        raise _Broken(f"{where} must be an object, not {type(step).__name__}")
    tool = _text(step, "tool", where)
    if tool == END:
        raise _Broken(f"{where}.tool is {END!r}, which means the end of a run")
    error = _field(step, "error", where)
    if not isinstance(error, bool):
        raise _Broken(f"{where}.error must be true or false, not {type(error).__name__}")
    return Step(
        tool=tool,
        called_at=_time(step, "called_at", where),
        returned_at=_time(step, "returned_at", where),
        error=error,
    )


def _field(record: Mapping[str, object], name: str, where: str = "") -> object:
    if name not in record:
        raise _Broken(f"{_named(name, where)} is missing")
    return record[name]


def _text(record: Mapping[str, object], name: str, where: str = "") -> str:
    value = _field(record, name, where)
    if not isinstance(value, str) or not value:
        raise _Broken(f"{_named(name, where)} must be a text that is not empty")
    return value


def _run_id(record: Mapping[str, object]) -> str | None:
    """Return the run's id; None if it is missing, or not a text or number."""
    value = record.get("run_id")
    return str(value) if isinstance(value, str | int) and value != "" else None


def _optional_int(record: Mapping[str, object], name: str, where: str = "") -> int | None:
    value = _field(record, name, where)
    # bool is an int to Python, and `true` is no time.
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise _Broken(f"{_named(name, where)} must be an integer or null")
    return value


def _time(record: Mapping[str, object], name: str, where: str = "") -> int | None:
    """Return a time in Unix ms, from an integer or an ISO 8601 time; None if there is none."""
    value = record.get(name)
    if isinstance(value, str):
        at = iso_ms(value)
        if at is None:
            expected = (
                f"{_named(name, where)} must be an integer or null (Unix ms), or an ISO 8601 time"
            )
            raise _Broken(f"{expected}, not {value!r}")
        return _in_range(at, _named(name, where))
    try:
        refuse_other_units(value, _named(name, where))
    except ValueError as error:
        raise _Broken(str(error)) from error
    if isinstance(value, float):
        raise _Broken(f"{_named(name, where)} must be an integer or null (Unix ms), not {value!r}")
    at = _optional_int({name: value}, name, where)
    return _in_range(at, _named(name, where)) if at else None


def _in_range(at: int, name: str) -> int:
    if not (0 < at < _RELATIVE_MS or FIRST_MS <= at <= LAST_MS):
        raise _Broken(
            f"{name}: {at} is before the year 2000 or after 9999; give Unix milliseconds, or null"
        )
    return at


def _check_times(started_at: int | None, steps: tuple[Step, ...]) -> None:
    """Reject times with absurd durations: dates beside relative times, calls of days."""
    times: list[tuple[int | None, int | None]] = [(None, started_at)]
    times += [(n, at) for n, step in enumerate(steps) for at in (step.called_at, step.returned_at)]
    if any(at is not None and at >= FIRST_MS for _, at in times):
        for index, at in times:
            if at is not None and at < FIRST_MS:
                name = "started_at" if index is None else f"steps[{index}]"
                raise _Broken(
                    f"{name} has the time {at}, and other times are dates; "
                    "give Unix milliseconds, or null",
                    index,
                )
    for index, step in enumerate(steps):
        took = (step.returned_at or 0) - (step.called_at or step.returned_at or 0)
        if took > LONGEST_CALL_MS:
            hours = f"steps[{index}] took {took / 3_600_000:,.1f} hours"
            raise _Broken(f"{hours}, a call may take 24; give null for one of its times", index)


def _named(name: str, where: str) -> str:
    return f"{where}.{name}" if where else name
