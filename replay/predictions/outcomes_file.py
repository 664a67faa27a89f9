"""Judged outcomes from a JSONL file, checked field by field, with the contexts they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from headstart.events.exact_json import load_exactly
from headstart.events.schema import FIRST_MS
from headstart.keys import context_paths
from learners.outcome import Outcome
from replay.files.input import local_file
from replay.files.json_lines import json_lines
from replay.files.times import iso_ms, refuse_other_units
from replay.predictions.spelling import meant, snake

ROOT: Final = "default"
"""The level above all workflow types."""
_FIELDS: Final = (
    "confidence", "correct", "gain", "cost", "at", "workflow_id", "speculated", "not_startable",
    "calibrated",
)  # fmt: skip
_OF_CONTEXT: Final = ("workflow_type", "domain", "user_id", "tool_id", "tool")
_CHOOSING: Final = ("workflow_type", "domain", "user_id")
_TENANT: Final = frozenset(("tenant", "tenants", "tenant_id", "tenantid"))


class OutcomeError(ValueError):
    """A line is no outcome; the message names the file, the line, the reason and the form."""


class JudgedOutcome(NamedTuple):
    """One outcome and the paths of its contexts, coarse to fine, beginning with `ROOT`."""

    paths: tuple[str, ...]
    outcome: Outcome


class OutcomeLine(NamedTuple):
    """One line of a file: the judged outcome, and its workflow, tool and domain if named."""

    judged: JudgedOutcome
    workflow: str | None
    tool: str | None
    workflow_type: str | None
    domain: str | None
    gain_known: bool = True
    cost_known: bool = True


def read_outcomes(path: str | PathLike[str], levels: Sequence[str]) -> Iterator[JudgedOutcome]:
    """Yield the outcomes of a file in its order; empty lines are passed over.

    A line reads `{"context": {"workflow_type": …, …}, "confidence": p, "correct": bool, "gain": g,
    "cost": c, "at": ms or an ISO 8601 time}`; any key of the context may be missing, so may gain,
    cost and at. `speculated` is whether it was started, `not_startable` (a text) why it could
    not be, whatever the threshold; `calibrated`, that the confidence is believed in a cold start.
    Raises `OutcomeError` at the first invalid line, `OSError` where the file cannot be read.
    """
    with json_lines(local_file(Path(path))) as lines:
        for line in parse_numbered(lines, levels, str(path)):
            yield line.judged


def parse_outcomes(
    lines: Iterable[bytes], levels: Sequence[str], name: str
) -> Iterator[JudgedOutcome]:
    """Yield the outcomes of lines; `name` is their origin in errors."""
    for line in parse_lines(lines, levels, name):
        yield line.judged


def parse_lines(lines: Iterable[bytes], levels: Sequence[str], name: str) -> Iterator[OutcomeLine]:
    """Yield lines with the workflow (`workflow_id`), and what of the context chooses and scales."""
    yield from parse_numbered(enumerate(lines, start=1), levels, name)


def parse_numbered(
    lines: Iterable[tuple[int, bytes]],
    levels: Sequence[str],
    name: str,
    unused: set[str] | None = None,
) -> Iterator[OutcomeLine]:
    """Yield lines as `parse_lines` does, of lines that come with their numbers.

    `unused`: takes the names beside `context` that are fields of no outcome.
    """
    fields = frozenset((*_FIELDS, "context", *_OF_CONTEXT, *levels))
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = load_exactly(line)
            judged = _judged(record, levels)
            if unused is not None and not fields.issuperset(record):
                unused.update(record.keys() - fields)
            context = record.get("context") or {}
            tool, workflow_type, domain = (
                _text(context.get(key)) for key in ("tool_id", "workflow_type", "domain")
            )
            known = [record.get(name) is not None for name in ("gain", "cost")]
            workflow = _text(record.get("workflow_id"))
            yield OutcomeLine(judged, workflow, tool, workflow_type, domain, *known)
        except (ValueError, TypeError) as error:
            raise OutcomeError(f"{name}, line {number}: {error}; see --help for the form") from None


def paths_of(context: Mapping[str, Any], levels: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of a context, coarse to fine; levels that it does not have are left out."""
    workflow_type = context.get("workflow_type")
    if isinstance(workflow_type, str) and workflow_type:
        return (ROOT, *context_paths(workflow_type, context.get, levels))
    return (ROOT, *context_paths("", context.get, levels)[1:])


def _judged(record: Any, levels: Sequence[str]) -> JudgedOutcome:
    if not isinstance(record, dict):
        raise ValueError(f"an outcome is an object, not {type(record).__name__}")
    context = record.get("context") or {}
    if not isinstance(context, dict):
        raise ValueError(f"context must be an object, not {type(context).__name__}")
    _refuse_misspelt(record, context, levels)
    _refuse_misplaced(record, context, levels)
    correct = record.get("correct")
    if not isinstance(correct, bool):
        raise ValueError(f"correct must be true or false, not {correct!r}")
    speculated, calibrated = _flag(record, "speculated"), _flag(record, "calibrated")
    outcome = Outcome(
        confidence=_number(record, "confidence", None),
        correct=correct,
        speculated=speculated,
        gain=_number(record, "gain", 0.0),
        cost=_number(record, "cost", 0.0),
        timestamp=_time(record.get("at")),
        not_startable=_reason(record),
        calibrated=calibrated,
    )
    return JudgedOutcome(paths_of(context, levels), outcome)


def _flag(record: Mapping[str, Any], field: str) -> bool:
    """Return a truth that may be missing."""
    value = record.get(field)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{field} must be true or false, not {value!r}")
    return value is True


def _refuse_misspelt(
    record: Mapping[str, Any], context: Mapping[str, Any], levels: Sequence[str]
) -> None:
    """Raise `ValueError` for a name that is nearly one which counts, and which is not there.

    It would be ignored, and the outcome counted without a gain, or under a coarser context.
    """
    exact = (*_OF_CONTEXT, *levels)
    for place, names in ((record, (*_FIELDS, *exact, "context")), (context, exact)):
        for name, value in place.items():
            if name in names or value is None:
                continue
            if snake(name) in _TENANT and "tenant" not in levels:
                raise ValueError(
                    f"{name}: an outcome names no tenant; leave it out, or give a file per tenant "
                    f"(or name it as a level: --levels {name},domain,user_id)"
                )
            _refuse_near(name, value, record, context, levels)


def _refuse_near(
    name: str,
    value: Any,
    record: Mapping[str, Any],
    context: Mapping[str, Any],
    levels: Sequence[str],
) -> None:
    """Raise `ValueError` if a name may mean a field or a level that is not given."""
    if snake(name) == "context":
        raise ValueError(
            f"{name} is not read as a context: give its keys in context, or as columns"
        )
    field = meant(name, value, _FIELDS)
    if field is not None and record.get(field) is None:
        unit = " It is a number of ms." if field in ("gain", "cost") else ""
        if name == field:
            raise ValueError(f"{name} belongs beside context, not in it")
        raise ValueError(f"{name} is not a field of an outcome; did you mean {field}?{unit}")
    key = meant(name, value, (*_CHOOSING, *levels))
    if key is None or context.get(key) is not None or record.get(key) is not None:
        return
    if name in record:
        raise ValueError(f'{name} belongs in context; give "context": {{"{key}": ...}}')
    raise ValueError(f"{name} is not a key of the context that counts; did you mean {key}?")


def _refuse_misplaced(
    record: Mapping[str, Any], context: Mapping[str, Any], levels: Sequence[str]
) -> None:
    """Raise `ValueError` where a key of the context is beside it: it would be ignored."""
    for key in dict.fromkeys((*_OF_CONTEXT, *levels)):
        name = "tool_id" if key == "tool" else key
        if record.get(key) is not None and context.get(key, context.get(name)) is None:
            form = f'"context": {{"{name}": ...}}'
            raise ValueError(f"{key} belongs in context; give {form}")


def _reason(record: Mapping[str, Any]) -> str:
    """Return why a guess could not be started; "" where it could, or was."""
    reason = record.get("not_startable")
    if reason is not None and not isinstance(reason, str):
        raise ValueError(f"not_startable must be a text, not {reason!r}")
    return "" if record.get("speculated") is True else reason or ""


def _time(value: Any) -> int:
    """Return a time in Unix ms: of a number of them, or an ISO 8601 time; 0 where there is none.

    Raises `ValueError` where it is in another unit. A fraction below the year 2000 is one, as a
    spreadsheet's date is (days and their part).
    """
    if isinstance(value, str):
        at = iso_ms(value)
        if at is None:
            raise ValueError(f"at must be Unix ms or an ISO 8601 time, not {value!r}")
        return at
    refuse_other_units(value, "at")
    if isinstance(value, float) and value < FIRST_MS and not value.is_integer():
        raise ValueError(f"at: {value} is no Unix ms, perhaps a spreadsheet's days; give ISO 8601")
    return int(_number({"at": value}, "at", 0.0))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(record: Mapping[str, Any], field: str, missing: float | None) -> float:
    value = record.get(field)
    if value is None and missing is not None:
        return missing
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{field} must be a finite number, not {value!r:.100}")
    return float(value)
