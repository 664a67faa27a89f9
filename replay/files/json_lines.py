"""Reads a file as JSON lines: JSON lines themselves, or the rows of CSV converted to them.

The columns of CSV determine what a row is: a judged outcome (`correct`), an event (`event_type`), a
call of an agent run (`tool`), or an observation of another tool, whose columns are kept unchanged.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

from headstart.events.exact_json import dump_exactly
from replay.files.cells import (
    flag_of,
    json_of,
    level_of,
    maybe_truth_of,
    number_of,
    reason_of,
    truth_of,
)
from replay.files.input import CannotRead, Input, name_of, open_input
from replay.files.run_rows import Row, check_columns, runs_of_rows

_DELIMITERS: Final = ",;\t|"
_KNOWN: Final = frozenset(
    (
        "tool", "correct", "event_type", "run_type", "traceId", "trace_id", "Trace ID", "startTime",
        "start_time", "confidence",
    )
)  # fmt: skip
"""A first line with one of these cells is a header."""
_MOST_CELL: Final = 1 << 27


class JsonLines:
    """Lines with their numbers, from 1; a row of CSV as JSON.

    `step_lines`: the line of each step of the run that was yielded last; empty if it was one line.
    """

    def __init__(self, opened: Input, name: str) -> None:
        self._opened, self._name = opened, name
        self.step_lines: list[int] = []

    @property
    def share(self) -> float:
        """Share of the file that was read, 0 to 1."""
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
    """Open a file returned by `local_file` for its lines. Raises `OSError` and `CannotRead`."""
    with open_input(file) as opened:
        yield JsonLines(opened, name_of(file))


def header_of(line: bytes) -> tuple[Sequence[str], str] | None:
    """Return the columns and delimiter in the first line of CSV; None if it is not CSV."""
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
    """Return the form of rows of CSV, by their columns: `calls` of agent runs, `events` or judged
    `outcomes`; None for observations of other tools."""
    if "tool" in columns and "correct" not in map(str.casefold, columns):
        return "calls"
    if "event_type" in columns:
        return "events"
    return "outcomes" if _names_outcomes(columns) else None


def _names_outcomes(columns: Sequence[str]) -> bool:
    """Return whether columns are those of outcomes, in any case; misspellings are refused later."""
    return not {"correct", "confidence"}.isdisjoint(each.casefold() for each in columns)


def rows(
    header: tuple[Sequence[str], str], lines: Iterator[bytes], first: int, name: str
) -> Iterator[tuple[int, Row]]:
    """Yield the rows below a header with the number of their last line; empty cells are left out.

    `first`: the line number of the header. Raises `CannotRead`, also if a column occurs twice or a
    row that has a value has more or fewer cells than the header.
    """
    columns, delimiter = header
    if twice := [name for name, count in Counter(columns).items() if name and count > 1]:
        raise CannotRead(f"{name}:{first}: column {twice[0]} occurs twice; remove one of them")
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
        raise CannotRead(f"{name}, line {first + reader.line_num}: not CSV ({error})") from None


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
        check_columns(header[0], first, name)
        made: Iterator[tuple[int, Row]] = runs_of_rows(found, step_lines, name)
    elif form == "events":
        made = ((number, _event(row)) for number, row in found)
    elif form == "outcomes":
        for column in header[0]:
            if column.startswith("context.") and column.removeprefix("context.") in header[0]:
                key = column.removeprefix("context.")
                raise CannotRead(f"{name}:{first}: column {key} occurs twice, also as {column}")
        made = ((number, _outcome(row)) for number, row in found)
    else:
        made = ((number, plain(row)) for number, row in found)
    for number, record in made:
        yield number, dump_exactly(record)


def plain(row: Row) -> Row:
    """Return a row whose cells that hold a JSON object or list are that."""
    return {column: json_of(cell) if cell[:1] in "{[" else cell for column, cell in row.items()}


_OUTCOME: Final[Mapping[str, Callable[[str], Any]]] = {
    "confidence": number_of, "gain": number_of, "cost": number_of, "at": number_of,
    "correct": truth_of, "speculated": maybe_truth_of, "not_startable": reason_of,
    "workflow_id": str, "calibrated": maybe_truth_of,
}  # fmt: skip


def _outcome(row: Row) -> Row:
    """Return a judged outcome; columns other than its fields become keys of its context."""
    made: Row = {"context": {}}
    for column, cell in row.items():
        if column in _OUTCOME:
            made[column] = _OUTCOME[column](cell)
        else:
            made["context"][column.removeprefix("context.")] = cell
    return made


_EVENT: Final[Mapping[str, Callable[[str], Any]]] = {
    "timestamp": number_of, "confidence": number_of, "success": truth_of, "data.accepted": flag_of,
    "data.prediction.was_correct": flag_of, "data.prediction.speculated": flag_of,
    "data.prediction.failed": flag_of, "data.prediction.calibrated": flag_of,
}  # fmt: skip
"""Fields of an event that are a number or a boolean."""


def _event(row: Row) -> Row:
    """Return an event; dots in a column name separate nested keys: `data.result.gain_ms`."""
    made: Row = {}
    for column, cell in row.items():
        *above, last = column.split(".")
        place = made
        for name in above:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                break
        else:
            other: Callable[[str], Any] = json_of if above[:1] == ["data"] else str
            other = level_of if above == ["data", "context"] else other
            place[last] = _EVENT.get(column, other)(cell)
    return made
