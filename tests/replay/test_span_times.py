"""Laws of times of spans: a number in another unit than its field's is no time, and is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.importers.agent_runs import Run, Unmapped
from replay.importers.otlp import otlp_runs

AT = 1_790_000_000_000


def otlp(**times: Any) -> dict[str, Any]:
    span = {"traceId": "aa", "spanId": "bb", "name": "execute_tool find", **times}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def jaeger(**times: Any) -> dict[str, Any]:
    span = {"traceID": "aa", "spanID": "bb", "operationName": "execute_tool find", **times}
    return {"traceID": "aa", "spans": [span], "processes": {}}


def imported(folder: Path, document: dict[str, Any]) -> tuple[list[Run], Unmapped]:
    file, unmapped = folder / "x.json", Unmapped()
    file.write_text(json.dumps(document))
    return list(otlp_runs(file, unmapped)), unmapped


STARTS = [
    (AT * 1000, "read as microseconds, not as nanoseconds"),
    (str(AT * 1000), "read as microseconds, not as nanoseconds"),
    (AT, "read as milliseconds, not as nanoseconds"),
    (str(AT // 1000), "read as seconds, not as nanoseconds"),
    ("2026-01-31T12:00:00Z", "are not a number of nanoseconds"),
    (True, "are not a number of nanoseconds"),
    ("soon", "are not a number of nanoseconds"),
    (5, "are before the year 2000 or after 9999"),
    (-AT * 1_000_000, "are before the year 2000 or after 9999"),
]


@pytest.mark.parametrize(("start", "why"), STARTS)
def test_a_start_that_is_not_in_nanoseconds_is_not_mapped(
    tmp_path: Path, start: Any, why: str
) -> None:
    made = otlp(startTimeUnixNano=start, endTimeUnixNano=AT * 1_000_000)
    runs, unmapped = imported(tmp_path, made)
    assert not runs
    (reason,) = unmapped.counts
    assert reason.startswith("start times of tool spans")
    assert why in reason


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (AT * 1_000_000_000, "are before the year 2000 or after 9999"),
        ("2026-01-31T12:00:00Z", "are not a number of nanoseconds"),
    ],
)
def test_an_end_that_is_not_in_nanoseconds_is_counted(tmp_path: Path, end: Any, why: str) -> None:
    made = otlp(startTimeUnixNano=AT * 1_000_000, endTimeUnixNano=end)
    (run,), unmapped = imported(tmp_path, made)
    assert (run["steps"][0]["called_at"], run["steps"][0]["returned_at"]) == (AT, None)
    assert unmapped.counts == {f"end times of tool spans that {why}": 1}


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (AT, "read as milliseconds, not as microseconds"),
        (AT // 1000, "read as seconds, not as microseconds"),
        (AT * 1_000_000, "read as nanoseconds, not as microseconds"),
        ("2026-01-31T12:00:00Z", "are not a number of microseconds"),
        (7, "are before the year 2000 or after 9999"),
    ],
)
def test_a_start_of_jaeger_that_is_not_in_microseconds_is_not_mapped(
    tmp_path: Path, start: Any, why: str
) -> None:
    runs, unmapped = imported(tmp_path, jaeger(startTime=start, duration=5_000))
    assert not runs
    (reason,) = unmapped.counts
    assert why in reason


def test_times_in_their_unit_are_mapped(tmp_path: Path) -> None:
    spans = otlp(startTimeUnixNano=str(AT * 1_000_000), endTimeUnixNano=(AT + 5) * 1_000_000)
    for document in (spans, jaeger(startTime=AT * 1000, duration=5_000)):
        (run,), unmapped = imported(tmp_path, document)
        assert (run["steps"][0]["called_at"], run["steps"][0]["returned_at"]) == (AT, AT + 5)
        assert not unmapped.counts


def test_zero_is_no_time(tmp_path: Path) -> None:
    runs, unmapped = imported(tmp_path, otlp(startTimeUnixNano="0"))
    assert not runs
    assert unmapped.counts == {"tool spans without a start time": 1}


def test_an_end_more_than_a_day_after_the_start_is_counted(tmp_path: Path) -> None:
    end = (AT + 25 * 3_600_000) * 1_000_000
    made = otlp(startTimeUnixNano=AT * 1_000_000, endTimeUnixNano=end)
    (run,), unmapped = imported(tmp_path, made)
    assert run["steps"][0]["returned_at"] is None
    assert unmapped.counts == {"ends of tool spans more than 24 hours after their start": 1}
