"""Values that JSON, or its writer, cannot hold as they are: nothing else of a file is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.checked import checked_runs
from headstart.events.exact_json import dump_exactly, load_exactly
from replay.evaluation.recorded_run import InvalidRun, run_of_record
from replay.importers.agent_runs import Run, Unmapped
from replay.importers.langsmith_langfuse import langfuse_runs, langsmith_runs
from replay.importers.otlp import otlp_runs
from topics.spans.storable import MOST_LEVELS, NotStorable, read_json, storable
from topics.spans.unwrapping import literal

LARGE = 123_456_789_012_345_678_901_234_567_890
CUT = "cut emoji \ud83d"
REPAIRED = "cut emoji \ufffd"
AT = "2025-06-01T10:00:0{}Z"
Reader = Callable[[Path, Unmapped], Iterator[Run]]


def langfuse(number: int, given: Any, answer: Any, as_text: bool = False) -> dict[str, Any]:
    form: Callable[[Any], Any] = json.dumps if as_text else lambda value: value
    return {
        "id": f"o{number}", "traceId": f"t{number}", "type": "TOOL", "name": "find",
        "startTime": AT.format(number), "endTime": AT.format(number + 1),
        "input": form(given), "output": form(answer),
    }  # fmt: skip


def langsmith(number: int, given: Any, answer: Any, as_text: bool = False) -> dict[str, Any]:
    form: Callable[[Any], Any] = json.dumps if as_text else lambda value: value
    return {
        "id": f"o{number}", "trace_id": f"t{number}", "run_type": "tool", "name": "find",
        "start_time": AT.format(number), "end_time": AT.format(number + 1),
        "inputs": {"input": str(given)} if as_text else given, "outputs": {"output": form(answer)},
    }  # fmt: skip


def otlp(number: int, given: Any, answer: Any, as_text: bool = True) -> dict[str, Any]:
    values = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find",
        "gen_ai.tool.call.arguments": json.dumps(given),
        "gen_ai.tool.call.result": json.dumps(answer),
    }  # fmt: skip
    begin = 1_750_000_000_000_000_000 + number * 1_000_000_000
    span = {
        "traceId": f"{number}", "spanId": f"{number}", "name": "execute_tool find",
        "startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 1_000_000_000),
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in values.items()],
    }  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def run(number: int, given: Any, answer: Any, as_text: bool = False) -> dict[str, Any]:
    step = {"tool": "find", "error": False, "args": given, "result": answer}
    return {
        "source": "s", "domain": "d", "agent_model": "m", "task_id": str(number), "steps": [step]
    }  # fmt: skip


FORMS = [(langfuse, langfuse_runs), (langsmith, langsmith_runs), (otlp, otlp_runs),
         (run, checked_runs)]  # fmt: skip


def imported(
    tmp_path: Path, entries: list[Any], reader: Reader
) -> tuple[list[dict[str, Any]], Unmapped]:
    """The steps of one call each, as they are written and read again."""
    file, unmapped = tmp_path / "given.jsonl", Unmapped()
    file.write_text("".join(json.dumps(each) + "\n" for each in entries))
    runs = [load_exactly(dump_exactly(each)) for each in reader(file, unmapped)]
    return [step for each in runs for step in each["steps"]], unmapped


@pytest.mark.parametrize(("made", "reader"), FORMS)
@pytest.mark.parametrize("as_text", [False, True])
def test_large_integers_keep_their_digits(
    tmp_path: Path, made: Any, reader: Reader, as_text: bool
) -> None:
    given = made(1, {"id": LARGE}, {"id": LARGE}, as_text)
    ((step,), _) = imported(tmp_path, [given], reader)
    assert step["args"] == {"id": LARGE}
    assert step["result"] == {"id": LARGE}


@pytest.mark.parametrize(("made", "reader"), FORMS)
def test_half_of_a_surrogate_pair_is_repaired(tmp_path: Path, made: Any, reader: Reader) -> None:
    entries = [made(1, {"q": CUT}, {"a": CUT}), made(3, {"q": "b"}, CUT)]
    (first, second), _ = imported(tmp_path, entries, reader)
    assert (first["args"], first["result"]) == ({"q": REPAIRED}, {"a": REPAIRED})
    assert second["args"] == {"q": "b"}


@pytest.mark.parametrize("name", ["name", "sessionId", "userId", "statusMessage"])
def test_so_it_is_in_other_texts(tmp_path: Path, name: str) -> None:
    given = {**langfuse(1, {"q": 1}, None), name: CUT}
    talk = {**langfuse(0, [{"role": "user", "content": CUT}], None), "type": "GENERATION"}
    (step,), _ = imported(tmp_path, [given, {**talk, "traceId": "t1"}], langfuse_runs)
    assert step["user_before"] == [REPAIRED]
    assert step["tool"] == (REPAIRED if name == "name" else "find")


@pytest.mark.parametrize(("made", "reader"), FORMS)
def test_values_that_cannot_be_stored_are_counted_and_the_rest_is_kept(
    tmp_path: Path, made: Any, reader: Reader
) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    entries = [made(1, {"x": 1}, 1), made(3, {"x": deep}, 2), made(5, {"x": 3}, {"y": deep})]
    (first, second, third), unmapped = imported(tmp_path, entries, reader)
    assert (first["args"], first["result"]) == (
        {"x": 1},
        1 if made in (langfuse, run) else first["result"],
    )
    assert second["args"] is None
    assert second["result"] in (2, "2")
    assert third["args"] == {"x": 3}
    assert third["result"] is None
    reasons = [reason for reason in unmapped.counts if "nested more than 200 levels" in reason]
    assert len(reasons) == 2
    assert all("given.jsonl" in unmapped.first[reason] for reason in reasons)


@pytest.mark.parametrize(("made", "reader"), FORMS[:2] + FORMS[3:])
def test_a_number_that_json_does_not_have_is_not_null(
    tmp_path: Path, made: Any, reader: Reader
) -> None:
    file, unmapped = tmp_path / "given.jsonl", Unmapped()
    entries = [made(1, {"x": 1.5, "y": 1}, 1), made(3, {"x": 1}, [1.5, 1])]
    file.write_text("\n".join(json.dumps(each).replace("1.5", "1e400") for each in entries))
    first, last = [step for each in reader(file, unmapped) for step in each["steps"]]
    assert first["args"] is None
    assert (last["args"], last["result"]) == ({"x": 1}, ["Infinity", 1])
    assert any("hold a number that JSON does not have" in each for each in unmapped.counts)


def test_what_is_storable() -> None:
    nested: Any = 1
    for _ in range(MOST_LEVELS):
        nested = [nested]
    assert storable(nested) == nested
    with pytest.raises(NotStorable, match="nested more than"):
        storable([nested])
    assert storable({"a" + CUT: [CUT, None, LARGE]}) == {"a" + REPAIRED: [REPAIRED, None, LARGE]}
    for value in (float("nan"), [float("inf"), None], {1: 2}, {"x": {1}}):
        with pytest.raises(NotStorable):
            storable(value)


def test_texts_and_literals_are_read_exactly() -> None:
    assert read_json(json.dumps({"q": CUT, "n": LARGE})) == {"q": REPAIRED, "n": LARGE}
    assert literal(str({"id": LARGE})) == {"id": LARGE}
    assert literal("{1: 2}") is None


@pytest.mark.parametrize("name", ["args", "result"])
def test_a_recorded_run_is_read_exactly_or_refused(name: str) -> None:
    step = {"tool": "a", "args": {}}
    (call,) = run_of_record({"steps": [{**step, name: json.dumps({"id": LARGE})}]}).steps
    assert {"args": call.arguments, "result": call.result}[name] == {"id": LARGE}
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(
        InvalidRun, match=rf"steps\[0\].{name}: its values are nested more than 200"
    ):
        run_of_record({"steps": [{**step, name: {"x": deep}}]})


def test_a_number_that_json_does_not_have_costs_no_result() -> None:
    step = {"tool": "a", "args": {}}
    (call,) = run_of_record({"steps": [{**step, "result": [float("inf"), 1]}]}).steps
    assert call.result == ["Infinity", 1]
    with pytest.raises(InvalidRun, match=r"steps\[0\].args: its values hold a number"):
        run_of_record({"steps": [{**step, "args": {"x": float("nan")}}]})
