"""Laws of rows of CSV: a row that does not fit its header is refused, never cut or guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.checked import checked_runs
from replay.files.input import CannotRead
from replay.files.json_lines import json_lines
from replay.importers.agent_runs import Unmapped
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
    text, message = f"{header}\n{row}\n{row}{cells}\n", f"x.csv:3: {count} cells, the header has 5"
    with pytest.raises(CannotRead, match=message):
        read(tmp_path, text)
    with pytest.raises(CannotRead, match=message):
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
    with pytest.raises(CannotRead, match=rf"x.csv:1: column {last} occurs twice"):
        read(tmp_path, f"{header},{last}\n{row},5\n")


def test_a_key_of_the_context_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match=r"x.csv:1: column user_id occurs twice, also as"):
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


FLAGS: tuple[str, ...] = ("success", "data.accepted")
FLAGS += tuple(f"data.prediction.{name}" for name in ("was_correct", "speculated", "failed"))


@pytest.mark.parametrize("column", FLAGS)
@pytest.mark.parametrize(
    ("cell", "value"), [("1", True), ("1.0", True), ("yes", True), ("TRUE", True), ("0.0", False)]
)
def test_booleans_of_an_event(tmp_path: Path, column: str, cell: str, value: bool) -> None:
    (event,) = read(tmp_path, f"event_type,{column}\ntask_complete,{cell}\n")
    for name in column.split("."):
        event = event[name]
    assert event is value


CALLS = "source,domain,agent_model,task_id,tool"
OF = "s,d,m,t1,find"


def imported(folder: Path, text: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The runs of `headstart import runs`, and the lines that it refuses."""
    file, unmapped = folder / "x.csv", Unmapped()
    file.write_text(text)
    return list(checked_runs(file, unmapped)), dict(unmapped.counts)


def test_calls_of_runs_keep_arguments_results_and_messages(tmp_path: Path) -> None:
    columns = "args;result;result_chars;turn;user_before;said_before;seen_at;user_after"
    header = f"{CALLS.replace(',', ';')};{columns}"
    rows = (
        'find;{"id": 12345678901234567890};[{"a": 1}];2000;0;["hi"];[null, "let me see"];1000;',
        'find;{};42;;1.0;hello, again;;;["thanks"]',
    )
    lines = [header, *(f"s;d;m;t1;{row}" for row in rows)]
    (run,), refused = imported(tmp_path, "\n".join(lines))
    first, second = run["steps"]
    assert refused == {}
    assert (first["args"], first["result"]) == ({"id": 12345678901234567890}, [{"a": 1}])
    assert (first["result_chars"], first["turn"], first["seen_at"]) == (2000, 0, 1000)
    assert (first["user_before"], first["said_before"]) == (["hi"], [None, "let me see"])
    assert (second["args"], second["result"], second["turn"]) == ({}, "42", 1)
    assert second["user_before"] == "hello, again"
    assert run["user_after"] == ["thanks"]


def test_a_dot_is_a_level_of_arguments_and_results(tmp_path: Path) -> None:
    header = f"{CALLS},args.id,args.user.name,args.price,result.ok"
    text = f'{header}\n{OF},7,Ann,1.10,true\n{OF},"""7""",,,\n{OF},,,,\n'
    (run,), _ = imported(tmp_path, text)
    first, second, third = run["steps"]
    assert first["args"] == {"id": 7, "user": {"name": "Ann"}, "price": "1.10"}
    assert first["result"] == {"ok": True}
    assert second["args"] == {"id": "7"}
    assert "args" not in third  # not known


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("Args", "column Args is not read: write args"),
        ("Args.id", r"column Args.id is not read: write args.id"),
        ("turn.x", "column turn.x cannot be read"),
        ("args,arguments", "columns args and arguments both give args"),
        ("args.id,args", "columns args.id and args both give args"),
    ],
)
def test_columns_that_cannot_be_read_are_refused_by_name(
    tmp_path: Path, column: str, why: str
) -> None:
    cells = ",{}" * len(column.split(","))
    with pytest.raises(CannotRead, match=f"x.csv:1: {why}"):
        read(tmp_path, f"{CALLS},{column}\n{OF}{cells}\n")


@pytest.mark.parametrize("column", ["args", "turn", "user_before", "said_before", "seen_at"])
def test_a_cell_that_cannot_be_read_refuses_its_run_by_name(tmp_path: Path, column: str) -> None:
    text = f"{CALLS},{column}\n{OF},[7]\n{OF.replace('t1', 't2')},\n"
    (run,), refused = imported(tmp_path, text)
    assert run["task_id"] == "t2"
    ((reason, _),) = refused.items()
    assert f"steps[0].{column} must be" in reason
