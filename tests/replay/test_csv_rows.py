"""Laws of rows of CSV: a row that does not fit its header is refused, never cut or guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replay.files.input import CannotRead
from replay.files.json_lines import json_lines
from replay.importers.documents import documents

HEADERS = {
    "outcomes": ("workflow_type,confidence,correct,gain,cost", "r,0.9,true,100,50"),
    "events": ("event_type,tenant,timestamp,confidence,success", "task_complete,a,5,0.9,true"),
    "runs": ("run_id,tool,called_at,returned_at,error", "r1,find,1000,2000,false"),
    "observations": ("traceId,name,type,startTime,endTime", "t,find,TOOL,2026-01-01,2026-01-02"),
}


def read(folder: Path, text: str, name: str = "x.csv") -> list[Any]:
    file = folder / name
    file.write_text(text)
    with json_lines(file) as lines:
        return [json.loads(line) for _, line in lines]


def read_documents(folder: Path, text: str) -> Iterator[Any]:
    file = folder / "x.csv"
    file.write_text(text)
    return documents(file)


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize(("cells", "count"), [(",7", 6), (",", 6), (",7,8", 7)])
def test_a_row_with_too_many_cells_is_refused(
    tmp_path: Path, kind: str, cells: str, count: int
) -> None:
    header, row = HEADERS[kind]
    text, said = f"{header}\n{row}\n{row}{cells}\n", f"x.csv:3: {count} cells, the header has 5"
    with pytest.raises(CannotRead, match=said):
        read(tmp_path, text)
    with pytest.raises(CannotRead, match=said):
        list(read_documents(tmp_path, text))


@pytest.mark.parametrize("kind", HEADERS)
def test_a_row_with_too_few_cells_is_refused(tmp_path: Path, kind: str) -> None:
    header, row = HEADERS[kind]
    with pytest.raises(CannotRead, match=r"x.csv:2: 4 cells, the header has 5"):
        read(tmp_path, f"{header}\n{row.rpartition(',')[0]}\n{row}\n")


@pytest.mark.parametrize("kind", HEADERS)
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, kind: str) -> None:
    header, row = HEADERS[kind]
    last = header.rpartition(",")[2]
    with pytest.raises(CannotRead, match=rf"x.csv:1: column {last} is there twice"):
        read(tmp_path, f"{header},{last}\n{row},5\n")


def test_a_key_of_the_context_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match=r"x.csv:1: column user_id is there twice, also as"):
        read(tmp_path, "confidence,correct,user_id,context.user_id\n0.9,true,a,b\n")


@pytest.mark.parametrize("kind", HEADERS)
def test_empty_lines_are_passed_over(tmp_path: Path, kind: str) -> None:
    header, row = HEADERS[kind]
    plain = read(tmp_path, f"{header}\n{row}\n{row}\n")
    assert read(tmp_path, f"\n{header}\n\n{row}\n  \n,,,,\n{row}\n\n") == plain


def test_a_quoted_cell_may_hold_the_delimiter(tmp_path: Path) -> None:
    header, row = HEADERS["outcomes"]
    (made,) = read(tmp_path, f"{header}\n{row.replace('r,', chr(34) + 'a,b' + chr(34) + ',')}\n")
    assert made["context"] == {"workflow_type": "a,b"}


FLAGS = ("success", "data.accepted")
FLAGS += tuple(f"data.prediction.{name}" for name in ("was_correct", "speculated", "failed"))


@pytest.mark.parametrize("column", FLAGS)
@pytest.mark.parametrize(
    ("cell", "value"), [("1", True), ("1.0", True), ("yes", True), ("TRUE", True), ("0.0", False)]
)
def test_what_an_event_has_as_true_or_false(
    tmp_path: Path, column: str, cell: str, value: bool
) -> None:
    (event,) = read(tmp_path, f"event_type,{column}\ntask_complete,{cell}\n")
    for name in column.split("."):
        event = event[name]
    assert event is value
