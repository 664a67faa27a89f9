"""Laws of the trace reader: a good line arrives whole, a broken one is named, the rest flows on."""

from __future__ import annotations

import codecs
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.traces import END, BrokenLine, Step, TraceError, TraceRun, read_runs

TRACES = os.environ.get("HEADSTART_TRACES", "")


def step(**changes: Any) -> dict[str, Any]:
    """Return a step of the file's format, with more fields than the reader keeps."""
    return {
        **{"tool": "get_order", "args": {"order_id": "#W1"}, "result_chars": 3},
        **{"called_at": 1_000, "returned_at": 1_250, "error": False},
        **changes,
    }


def run(**changes: Any) -> dict[str, Any]:
    return {
        **{"source": "bench", "domain": "retail", "agent_model": "m", "task_id": "7", "trial": 0},
        **{"reward": 1.0, "started_at": None, "steps": [step()]},
        **changes,
    }


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


RUN = TraceRun("bench", "retail", "m", "7", 0, (Step("get_order", 1_000, 1_250, False),))

BROKEN = [
    (b"{", "not JSON"),
    (b'{"source": "\xff"}', "not JSON"),
    (b"[" * 200_000, "not JSON"),
    (b"[]", "a run must be an object, not list"),
    (json.dumps(without(run(), "domain")).encode(), "domain is missing"),
    (json.dumps(run(domain=None)).encode(), "domain must be a text"),
    (json.dumps(run(source="")).encode(), "source must be a text that is not empty"),
    (json.dumps(run(trial="0")).encode(), "trial must be an integer or null"),
    (json.dumps(run(started_at="now")).encode(), "started_at must be an integer or null"),
    (json.dumps(run(steps={})).encode(), "steps must be a list, not dict"),
    (json.dumps(run(steps=[step(), 3])).encode(), r"steps\[1\] must be an object, not int"),
    (json.dumps(run(steps=[without(step(), "error")])).encode(), r"steps\[0\].error is missing"),
    (json.dumps(run(steps=[step(error=0)])).encode(), r"steps\[0\].error must be true or false"),
    (
        json.dumps(run(steps=[step(called_at=True)])).encode(),
        r"steps\[0\].called_at must be an int",
    ),
    (json.dumps(run(steps=[step(returned_at=1.5)])).encode(), r"returned_at must be an integer"),
    (
        json.dumps(run(steps=[step(called_at=1_790_000_000)])).encode(),
        r"steps\[0\].called_at: 1790000000 reads as seconds; give Unix milliseconds",
    ),
    (
        json.dumps(run(steps=[step(returned_at=1_790_000_000.25)])).encode(),
        r"steps\[0\].returned_at: 1790000000.25 reads as seconds; give Unix milliseconds",
    ),
    (
        json.dumps(run(started_at=1_790_000_000_000_000)).encode(),
        "started_at: 1790000000000000 reads as microseconds; give Unix milliseconds",
    ),
    (
        json.dumps(run(started_at=1_790_000_000_000.5)).encode(),
        r"started_at must be an integer or null \(Unix ms\), not 1790000000000.5",
    ),
    (json.dumps(run(steps=[step(tool=END)])).encode(), r"steps\[0\].tool is '<end>'"),
]


def written(folder: Path, *lines: bytes) -> Path:
    path = folder / "traces.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def test_a_run_is_read_with_its_calls(tmp_path: Path) -> None:
    untimed = run(trial=None, steps=[step(called_at=None, returned_at=None)])
    path = written(tmp_path, json.dumps(run()).encode(), b"", json.dumps(untimed).encode())
    first, second = read_runs(path)
    assert first == RUN
    assert second.trial is None
    assert second.steps == (Step("get_order", None, None, False),)


def test_times_may_be_missing_or_iso_8601(tmp_path: Path) -> None:
    timed = step(called_at="1970-01-01T00:00:01", returned_at="1970-01-01T01:00:01.25+01:00")
    shorter = without(without(run(steps=[timed]), "trial"), "started_at")
    bare = run(started_at="1970-01-01T00:00:02Z", steps=[{"tool": "a", "error": True}])
    first, second = read_runs(written(tmp_path, *(json.dumps(e).encode() for e in (shorter, bare))))
    assert (first.trial, first.started_at) == (None, None)
    assert first.steps == RUN.steps
    assert second.started_at == 2000
    assert second.steps == (Step("a", None, None, True),)


@pytest.mark.parametrize("column", ["started_at", "called_at", "returned_at"])
@pytest.mark.parametrize("seconds", ["1790000000", "1790000000.5"])
def test_seconds_in_csv_are_refused(tmp_path: Path, column: str, seconds: str) -> None:
    header = f"source,domain,agent_model,task_id,tool,{column}"
    path = written(tmp_path, header.encode(), f"s,d,m,t,find,{seconds}".encode())
    broken: list[BrokenLine] = []
    assert not list(read_runs(path, broken.append))
    assert f"{column}: {seconds} reads as seconds; give Unix milliseconds" in broken[0].reason


@pytest.mark.parametrize(("line", "reason"), BROKEN)
def test_a_broken_line_is_named_and_the_rest_flows_on(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    good = json.dumps(run()).encode()
    broken: list[BrokenLine] = []
    assert list(read_runs(written(tmp_path, good, line, good), broken.append)) == [RUN, RUN]
    assert [b.line_number for b in broken] == [2]
    assert re.match(rf".*{reason}", broken[0].reason)


@pytest.mark.parametrize(("line", "reason"), BROKEN)
def test_a_refused_line_names_file_and_number(tmp_path: Path, line: bytes, reason: str) -> None:
    path = written(tmp_path, json.dumps(run()).encode(), line)
    runs = read_runs(path)
    assert next(runs) == RUN
    with pytest.raises(TraceError, match=rf"{re.escape(str(path))}, line 2: .*{reason}"):
        next(runs)


byte_order_marks = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
other_lines = st.binary(max_size=30).filter(
    lambda line: b"\n" not in line and not line.startswith(byte_order_marks)
)


@given(lines=st.lists(st.booleans() | other_lines))
def test_every_line_is_a_run_or_reported(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bool | bytes]
) -> None:
    good = json.dumps(run()).encode()
    raw = [good if line is True else b"{}" if line is False else line for line in lines]
    broken: list[BrokenLine] = []
    path = written(tmp_path_factory.mktemp("traces"), *raw)
    assert list(read_runs(path, broken.append)) == [RUN] * raw.count(good)
    expected = [n for n, line in enumerate(raw, start=1) if line.strip() and line != good]
    assert [b.line_number for b in broken] == expected


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(read_runs(tmp_path / "none.jsonl"))


@pytest.mark.skipif(not TRACES, reason="HEADSTART_TRACES does not name the real trace file")
def test_the_real_traces_are_read_whole() -> None:
    runs = list(read_runs(TRACES))
    assert len(runs) == 468
    assert sum(len(r.steps) for r in runs) == 3_510
    assert {r.domain for r in runs} == {"airline", "retail"}


def test_a_step_that_is_wrong_in_csv_is_named_by_its_own_row(tmp_path: Path) -> None:
    header = b"source,domain,agent_model,task_id,tool,called_at,error"
    rows = (b"s,d,m,t1,find,1000,", b"s,d,m,t2,find,1000,", b"s,d,m,t1,buy,2000,maybe")
    broken: list[BrokenLine] = []
    (left,) = read_runs(written(tmp_path, header, *rows), broken.append)
    assert left.task_id == "t2"
    assert [each.line_number for each in broken] == [4]
    with pytest.raises(TraceError, match=r"line 4: steps\[1\]\.error must be true or false"):
        list(read_runs(written(tmp_path, header, *rows)))


AT = 1_790_000_000_000
DAY = 24 * 3_600_000


@pytest.mark.parametrize("name", ["started_at", "called_at", "returned_at"])
@pytest.mark.parametrize("time", [-1, -AT, 946_684_799_999, 253_402_300_800_000])
def test_a_time_outside_the_range_of_dates_is_refused(tmp_path: Path, name: str, time: int) -> None:
    record = run(started_at=time) if name == "started_at" else run(steps=[step(**{name: time})])
    with pytest.raises(TraceError, match=name):
        list(read_runs(written(tmp_path, json.dumps(record).encode())))


def test_a_time_of_zero_is_missing(tmp_path: Path) -> None:
    record = run(started_at=0, steps=[step(called_at=0, returned_at=AT)])
    (read,) = read_runs(written(tmp_path, json.dumps(record).encode()))
    assert (read.started_at, read.steps[0].called_at, read.steps[0].returned_at) == (None, None, AT)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (run(steps=[step(called_at=1_000, returned_at=AT)]), r"steps\[0\] has the time 1000, and"),
        (run(steps=[step(called_at=AT, returned_at=AT), step()]), r"steps\[1\] has the time 1000"),
        (run(started_at=5, steps=[step(called_at=AT, returned_at=AT)]), "started_at has the time"),
        (run(steps=[step(called_at=AT, returned_at=AT + DAY + 1)]), r"steps\[0\] took 24.0 hours"),
        (run(steps=[step(called_at=1, returned_at=DAY + 2)]), r"steps\[0\] took 24.0 hours"),
        (run(steps=[step(called_at=AT, returned_at=4_102_444_800_000)]), r"steps\[0\] took 6"),
    ],
)
def test_times_that_give_absurd_durations_are_refused(
    tmp_path: Path, record: dict[str, Any], why: str
) -> None:
    with pytest.raises(TraceError, match=why):
        list(read_runs(written(tmp_path, json.dumps(record).encode())))


def test_a_call_may_take_a_day(tmp_path: Path) -> None:
    record = run(steps=[step(called_at=AT, returned_at=AT + DAY)])
    assert len(list(read_runs(written(tmp_path, json.dumps(record).encode())))) == 1
