"""JSON lines of a file that has such lines, or rows of CSV that stand for them.

The columns of CSV tell what its rows are: judged outcomes (`correct`), events (`event_type`), calls
of agent runs (`tool`, a row each), or observations of other tools, whose columns stay as they are.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import orjson

from replay.files.input import CannotRead, Input, name_of, open_input

Row = dict[str, Any]

_DELIMITERS: Final = ",;\t|"
_KNOWN: Final = frozenset(
    (
        "tool", "correct", "event_type", "run_type", "traceId", "trace_id", "Trace ID", "startTime",
        "start_time", "confidence",
    )
)  # fmt: skip
"""A first line with one of these among its cells is a header."""
_DIGITS: Final = 20
"""From so many digits on a number may not fit into 64 bits."""
_MOST_CELL: Final = 1 << 27
_TRUE: Final = frozenset(("true", "1", "1.0", "yes", "t"))
_FALSE: Final = frozenset(("false", "0", "0.0", "no", "f"))
_NOTHING: Final = frozenset(("nan", "none", "null", "n/a", "na", "<na>"))
"""What programs write into a cell that has no value."""


class JsonLines:
    """Lines with their numbers, from 1; of CSV the JSON that stands for a row. `share`: read.

    `step_lines`: of the run that was yielded last, the line of each step; empty where it was one.
    """

    def __init__(self, opened: Input, name: str) -> None:
        self._opened, self._name = opened, name
        self.step_lines: list[int] = []

    @property
    def share(self) -> float:
        """Which share of the file was read."""
        return self._opened.share

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        lines = enumerate(self._opened, start=1)
        for number, line in lines:
            if not line.strip():
                continue
            if (found := header_of(line)) is None:
                yield from chain([(number, line)], lines)
            else:
                rest = (line for _, line in lines)
                yield from _rows_as_lines(found, rest, number, self._name, self.step_lines)
            return


def columns_of(file: Path) -> Sequence[str] | None:
    """Return the columns of a file of CSV; None for other files. Raises `OSError`, `CannotRead`."""
    with open_input(file) as opened:
        header = header_of(next((line for line in opened if line.strip()), b""))
    return None if header is None else header[0]


@contextmanager
def json_lines(file: Path) -> Iterator[JsonLines]:
    """Open a file of `input_files.local_file` for its lines. Raises `OSError` and `CannotRead`."""
    with open_input(file) as opened:
        yield JsonLines(opened, name_of(file))


def header_of(line: bytes) -> tuple[Sequence[str], str] | None:
    """Return the columns and the delimiter of CSV, by its first line; None where it is no CSV."""
    text = line.decode("utf-8", "backslashreplace").strip()
    if text[:1] in ("", "{", "["):
        return None
    for delimiter in _DELIMITERS:
        try:
            cells = [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter))]
        except csv.Error:
            continue
        if len(cells) > 1 and (_names_outcomes(cells) or not _KNOWN.isdisjoint(cells)):
            return cells, delimiter
    return None


def form_of(columns: Sequence[str]) -> str | None:
    """Return what the columns of CSV say that its rows are; None for observations of other tools:
    `calls` of agent runs, `events` or judged `outcomes`."""
    if "tool" in columns and "correct" not in map(str.casefold, columns):
        return "calls"
    if "event_type" in columns:
        return "events"
    return "outcomes" if _names_outcomes(columns) else None


def _names_outcomes(columns: Sequence[str]) -> bool:
    """Return whether columns are of outcomes, in whatever case: what is misspelt is named later."""
    return not {"correct", "confidence"}.isdisjoint(each.casefold() for each in columns)


def rows(
    header: tuple[Sequence[str], str], lines: Iterator[bytes], first: int, name: str
) -> Iterator[tuple[int, Row]]:
    """Yield the rows below a header with the number of their last line; empty cells are left out.

    `first`: the number of the header's line. Raises `CannotRead`, also where a column is there
    twice, and where a row with a value has more or fewer cells than the header.
    """
    columns, delimiter = header
    if twice := [name for name, count in Counter(columns).items() if name and count > 1]:
        raise CannotRead(f"{name}:{first}: column {twice[0]} is there twice; leave one of them out")
    csv.field_size_limit(_MOST_CELL)
    texts = (line.decode("utf-8", "backslashreplace") for line in lines)
    reader = csv.reader(texts, delimiter=delimiter)
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            number = first + reader.line_num
            if len(cells) != len(columns):
                raise CannotRead(
                    f"{name}:{number}: {len(cells)} cells, the header has {len(columns)}; quote a "
                    f"cell that holds {_named(delimiter)}"
                )
            pairs = zip(columns, cells, strict=True)
            if row := {column: cell for column, cell in pairs if column and cell != ""}:
                yield number, row
    except csv.Error as error:
        raise CannotRead(f"{name}, line {first + reader.line_num}: no CSV ({error})") from None


def _named(delimiter: str) -> str:
    return "a tab" if delimiter == "\t" else f"'{delimiter}'"


def _rows_as_lines(
    header: tuple[Sequence[str], str],
    lines: Iterator[bytes],
    first: int,
    name: str,
    step_lines: list[int],
) -> Iterator[tuple[int, bytes]]:
    found, form = rows(header, lines, first, name), form_of(header[0])
    if form == "calls":
        made: Iterator[tuple[int, Row]] = _runs(found, step_lines)
    elif form == "events":
        made = ((number, _event(row)) for number, row in found)
    elif form == "outcomes":
        for column in header[0]:
            if column.startswith("context.") and column.removeprefix("context.") in header[0]:
                key = column.removeprefix("context.")
                raise CannotRead(f"{name}:{first}: column {key} is there twice, also as {column}")
        made = ((number, _outcome(row)) for number, row in found)
    else:
        made = ((number, plain(row)) for number, row in found)
    for number, record in made:
        yield number, orjson.dumps(record)


def plain(row: Row) -> Row:
    """Return a row whose cells that hold a JSON object or list are that."""
    return {column: _json(cell) if cell[:1] in "{[" else cell for column, cell in row.items()}


def _json(cell: str) -> Any:
    if cell.lower() in ("true", "false"):  # spreadsheets write them in capitals
        cell = cell.lower()
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell


def _number(cell: str) -> Any:
    """Return a number; None for NaN.

    What JSON cannot hold, and what only Python reads as a number (`4_00`, digits of other scripts),
    stays a text, and is refused as one.
    """
    if "_" in cell or not cell.strip().isascii():
        return cell
    try:
        if len(cell) < _DIGITS and cell.strip().isdecimal():
            return int(cell)
        found = float(cell)
    except ValueError:
        return cell
    return cell if math.isinf(found) else found


def _truth(cell: str) -> Any:
    word = cell.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else cell


def _maybe_truth(cell: str) -> Any:
    return None if cell.strip().lower() in _NOTHING else _truth(cell)


def _reason(cell: str) -> Any:
    """Return a text; what reads as true or false stays that, so that it is refused as no text."""
    found = _maybe_truth(cell)
    return cell.strip() if isinstance(found, str) else found


_OUTCOME: Final[Mapping[str, Callable[[str], Any]]] = {
    "confidence": _number, "gain": _number, "cost": _number, "at": _number,
    "correct": _truth, "speculated": _maybe_truth, "not_startable": _reason, "workflow_id": str,
}  # fmt: skip


def _outcome(row: Row) -> Row:
    """Return a judged outcome; columns that are none of its fields are keys of its context."""
    made: Row = {"context": {}}
    for column, cell in row.items():
        if column in _OUTCOME:
            made[column] = _OUTCOME[column](cell)
        else:
            made["context"][column.removeprefix("context.")] = cell
    return made


def _flag(cell: str) -> Any:
    found = _truth(cell)
    return found if isinstance(found, bool) else _json(cell)  # null, and what is refused


_EVENT: Final[Mapping[str, Callable[[str], Any]]] = {
    "timestamp": _number, "confidence": _number, "success": _truth, "data.accepted": _flag,
    "data.prediction.was_correct": _flag, "data.prediction.speculated": _flag,
    "data.prediction.failed": _flag,
}  # fmt: skip
"""What is a number, or true or false, in the contract of events."""


def _event(row: Row) -> Row:
    """Return an event; a dot in a column's name is a level: `data.result.gain_ms`."""
    made: Row = {}
    for column, cell in row.items():
        *above, last = column.split(".")
        place = made
        for name in above:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                break
        else:
            other: Callable[[str], Any] = _json if above[:1] == ["data"] else str
            place[last] = _EVENT.get(column, other)(cell)
    return made


_RUN: Final = ("source", "domain", "agent_model", "task_id")


def _failed(cell: str) -> Any:
    """Return whether a call failed; it did not where its cell has no value."""
    word = cell.strip().lower()
    return False if not word or word in _NOTHING else _truth(cell)


def _runs(found: Iterator[tuple[int, Row]], step_lines: list[int]) -> Iterator[tuple[int, Row]]:
    """Yield the runs of rows that are a call each; rows of one run have the same `run_id`, or the
    same source, domain, agent_model, task_id and trial. `step_lines`: takes the rows of a run."""
    runs: dict[tuple[Any, ...], tuple[list[int], Row]] = {}
    for number, row in found:
        own: Row = {name: row[name] for name in _RUN if name in row}
        if "trial" in row:
            own["trial"] = _number(row["trial"])
        if "started_at" in row:
            own["started_at"] = _number(row["started_at"])
        if "run_id" in row:
            own["run_id" if "task_id" in own else "task_id"] = row["run_id"]
        same = (row.get("run_id"), *(own.get(name) for name in (*_RUN, "trial")))
        numbers, run = runs.setdefault(same, ([], {**own, "steps": []}))
        numbers.append(number)
        step: Row = {name: row[name] for name in ("tool",) if name in row}
        step |= {at: _number(row[at]) for at in ("called_at", "returned_at") if at in row}
        run["steps"].append({**step, "error": _failed(row.get("error", ""))})
    for numbers, run in runs.values():
        step_lines[:] = numbers
        yield numbers[0], run
