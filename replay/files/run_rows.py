"""Agent runs from rows of CSV: one call a row, its columns the fields of a run and of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from replay.files.cells import NOTHING, json_of, number_of, truth_of
from replay.files.input import CannotRead

Row = dict[str, Any]

_RUN: Final = ("source", "domain", "agent_model", "task_id")
_AFTER: Final = ("user_after", "said_after")
_OBJECTS: Final = {"args": "args", "arguments": "args", "result": "result"}
"""Columns of JSON, by the field that they are: a dot in a column is a level below the field."""


def _failed(cell: str) -> Any:
    """Return whether a call failed; False for an empty cell."""
    word = cell.strip().lower()
    return False if not word or word in NOTHING else truth_of(cell)


def _whole(cell: str) -> Any:
    """Return an integer, also of `2.0`, as programs write it in a column with missing values."""
    found = number_of(cell)
    return int(found) if isinstance(found, float) and found.is_integer() else found


def _texts(cell: str) -> Any:
    """Return a JSON list of texts; a cell that is none is one text."""
    if _is_missing(cell):
        return None
    return json_of(cell) if cell.lstrip()[:1] == "[" else cell


def _arguments(cell: str) -> Any:
    return None if _is_missing(cell) else json_of(cell)


def _argument(cell: str) -> Any:
    """Return one argument, as JSON. A number that JSON writes otherwise stays a text: `1.10`."""
    found = json_of(cell)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return cell if is_number and str(found) != cell else found


def _result(cell: str) -> Any:
    """Return a result: an object or a list, else a text."""
    if _is_missing(cell):
        return None
    return json_of(cell) if cell.lstrip()[:1] in ("{", "[") else cell


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in NOTHING


_STEP: Final[Mapping[str, Callable[[str], Any]]] = {
    "tool": str, "called_at": number_of, "returned_at": number_of, "args": _arguments,
    "result": _result, "result_chars": _whole, "turn": _whole, "user_before": _texts,
    "said_before": _texts, "seen_at": number_of,
}  # fmt: skip
_FIELDS: Final = frozenset(
    (*_RUN, *_AFTER, *_STEP, "run_id", "trial", "started_at", "error", "arguments")
)


def check_columns(columns: Sequence[str], line: int, name: str) -> None:
    """Refuse columns that are nearly a field, and those that give one field twice.

    Raises `CannotRead`, naming the column.
    """
    given: dict[str, str] = {}
    for column in columns:
        root, dot, _ = column.partition(".")
        field = root.lower()
        if field not in _FIELDS:
            continue  # of no meaning here, as other fields of JSON lines are
        if root != field:
            if field not in columns:
                meant = field + column[len(root) :]
                raise CannotRead(f"{name}:{line}: column {column} is not read: write {meant}")
            continue
        if dot and field not in _OBJECTS:
            raise CannotRead(
                f"{name}:{line}: column {column} cannot be read: {field} has no levels, only args "
                "and result have"
            )
        if field not in _OBJECTS:
            continue
        before = given.setdefault(_OBJECTS[field], column)
        if before != column and not (dot and before.partition(".")[0] == field and "." in before):
            raise CannotRead(
                f"{name}:{line}: columns {before} and {column} both give {_OBJECTS[field]}; "
                "remove one of them"
            )


def runs_of_rows(
    found: Iterator[tuple[int, Row]], step_lines: list[int], name: str
) -> Iterator[tuple[int, Row]]:
    """Group rows of one call each into runs and yield them.

    Rows of a run have the same `run_id`, or the same source, domain, agent_model, task_id and
    trial. `step_lines` is set to the line numbers of the run that is yielded. Raises `CannotRead`
    where rows of one run differ in what comes after its last call.
    """
    runs: dict[tuple[Any, ...], tuple[list[int], Row]] = {}
    for number, row in found:
        own = _run_fields(row)
        same = (row.get("run_id"), *(own.get(field) for field in (*_RUN, "trial")))
        numbers, run = runs.setdefault(same, ([], {**own, "steps": []}))
        for field in _AFTER:
            if field in row:
                texts = _texts(row[field])
                if run.setdefault(field, texts) != texts:
                    raise CannotRead(
                        f"{name}:{number}: {field} differs from that of the run in line "
                        f"{numbers[0]}; give it in one row of a run"
                    )
        numbers.append(number)
        run["steps"].append(_step(row))
    for numbers, run in runs.values():
        step_lines[:] = numbers
        yield numbers[0], run


def _run_fields(row: Row) -> Row:
    own: Row = {field: row[field] for field in _RUN if field in row}
    own |= {field: number_of(row[field]) for field in ("trial", "started_at") if field in row}
    if "run_id" in row:
        own["run_id" if "task_id" in own else "task_id"] = row["run_id"]
    return own


def _step(row: Row) -> Row:
    step: Row = {"error": _failed(row.get("error", ""))}
    for column, cell in row.items():
        root, _, below = column.partition(".")
        field = _OBJECTS.get(root, root)
        if field not in _STEP:
            continue
        if below:
            if not _is_missing(cell):
                _put(step.setdefault(field, {}), below.split("."), _argument(cell))
        else:
            step[field] = _STEP[field](cell)
    return step


def _put(place: Row, levels: Sequence[str], value: Any) -> None:
    """Set a value below an object; where one of its levels has a value, under the whole name."""
    if not isinstance(place.get(levels[0], {}), dict) or len(levels) == 1:
        place[".".join(levels)] = value
    else:
        _put(place.setdefault(levels[0], {}), levels[1:], value)
