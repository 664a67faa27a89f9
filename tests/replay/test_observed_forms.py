"""Exports of LangSmith, Langfuse and tau2-bench however they come: the same calls, each once."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replay.importers.agent_runs import Run, Unmapped
from replay.importers.langsmith_langfuse import langfuse_runs, langsmith_runs
from replay.importers.sources import sources
from replay.importers.tau_bench import tau_runs

AT = 1_767_225_600_000
"""2026-01-01 in Unix ms."""


def smith(number: int, name: str, kind: str = "tool", **more: Any) -> dict[str, Any]:
    return {
        "id": f"r{number}", "trace_id": "t1", "name": name, "run_type": kind,
        "start_time": f"2026-01-01T00:00:{number:02}", "error": None,
        "end_time": f"2026-01-01T00:00:{number + 1:02}", "session_name": "shop", **more,
    }  # fmt: skip


def fuse(number: int, name: str, kind: str = "TOOL", **more: Any) -> dict[str, Any]:
    return {
        "id": f"o{number}", "traceId": "t1", "type": kind, "name": name, "level": "DEFAULT",
        "startTime": f"2026-01-01T00:00:{number:02}.000Z", "projectId": "shop",
        "endTime": f"2026-01-01T00:00:{number + 1:02}.000Z", **more,
    }  # fmt: skip


def lines(*entries: Any) -> str:
    return "".join(json.dumps(each) + "\n" for each in entries)


def table(*entries: dict[str, Any]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, entries[0].keys())
    writer.writeheader()
    writer.writerows(entries)
    return out.getvalue()


def without(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in names}


def in_snake(entry: dict[str, Any]) -> dict[str, Any]:
    names = {"traceId": "trace_id", "projectId": "project_id"}
    made = {names.get(k, k): v for k, v in without(entry, "startTime", "endTime").items()}
    times = {"start_time": entry["startTime"], "end_time": entry["endTime"]}
    return made | {k: v.replace("T", " ").rstrip("Z") + "000" for k, v in times.items()}


SMITH = (smith(2, "search"), smith(5, "buy"))
FUSE = (fuse(2, "search"), fuse(5, "buy"))
CHILD = without(smith(5, "buy"), "trace_id", "session_name")
SMITHS: dict[str, str] = {
    "lines": lines(smith(1, "agent", "chain"), *SMITH),
    "array": json.dumps(SMITH),
    "page of the API": json.dumps({"runs": SMITH, "cursors": {"next": None}}),
    "nested": json.dumps(
        smith(1, "agent", "chain", child_runs=[
            smith(2, "search"), smith(3, "sub", "chain", child_runs=[CHILD])])
    ),
    "nested, and by themselves": lines(smith(1, "agent", "chain", child_runs=list(SMITH)), *SMITH),
    "twice": lines(*SMITH, *SMITH),
    "first without its end": lines({**SMITH[0], "end_time": None}, *SMITH),
    "the end, then without": lines(*SMITH, {**SMITH[0], "end_time": None}),
    "unordered": lines(*SMITH[::-1]),
    "numbers": lines(*({**each, "start_time": AT / 1000 + n, "end_time": AT + n * 1000 + 1000}
                       for each, n in zip(SMITH, (2, 5), strict=True))),
    "zones": lines(*({**each, "start_time": f"2026-01-01 0{n}:00:0{at}.0+0{n}:00",
                      "end_time": f"2026-01-01 00:00:0{at + 1} UTC"}
                     for each, n, at in zip(SMITH, (1, 0), (2, 5), strict=True))),
    "CSV": table(*SMITH),
    "a tool in the same tool": lines(
        *SMITH, smith(3, "search", parent_run_id="r2"), smith(6, "buy", parent_run_id="r5")),
}  # fmt: skip
OBSERVED = {"attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "buy"}}
FUSES: dict[str, str] = {
    "lines": lines(fuse(1, "llm", "GENERATION"), *FUSE),
    "array": json.dumps(FUSE),
    "lower case": lines(*({**each, "type": "tool"} for each in FUSE)),
    "trace": json.dumps({"id": "t1", "projectId": "shop",
                         "observations": [without(each, "traceId") for each in FUSE]}),
    "download": json.dumps({"trace": {"id": "t1", "projectId": "shop"},
                            "observations": [without(each, "traceId", "projectId")
                                             for each in FUSE]}),
    "page of the API": json.dumps({"data": FUSE, "meta": {"page": 1}}),
    "pages": lines(*({"data": [each], "meta": {"page": 1}} for each in FUSE)),
    "page of traces": json.dumps({"data": [{"id": "t1", "projectId": "shop", "observations": FUSE}],
                                  "meta": {}}),
    "blob storage": lines(*map(in_snake, FUSE)),
    "updated": lines({**FUSE[0], "endTime": None}, *FUSE),
    "updated, out of order": lines(*FUSE, {**FUSE[0], "endTime": None}),
    "CSV": table(*FUSE),
    "CSV of blob storage": table(*map(in_snake, FUSE)),
    "by OpenTelemetry": lines(FUSE[0], {**FUSE[1], "type": "SPAN", "name": "execute_tool buy",
                                        "metadata": OBSERVED}),
    "by OpenTelemetry, as text": lines(FUSE[0], {**FUSE[1], "type": "SPAN", "name": "x",
                                                 "metadata": json.dumps(OBSERVED)}),
    "a tool in the same tool": lines(*FUSE, fuse(3, "search", parentObservationId="o2")),
}  # fmt: skip


def read(importer: Callable[..., Any], folder: Path, *texts: str, **how: Any) -> tuple[Any, Any]:
    files, unmapped = [], Unmapped()
    for number, text in enumerate(texts):
        files.append(folder / f"{number}")
        files[-1].write_text(text)
    return list(importer(files, unmapped, **how)), unmapped


def check(runs: list[Run]) -> None:
    (run,) = runs
    assert (run["task_id"], run["domain"], run["started_at"]) == ("t1", "shop", AT + 2000)
    times = [(step["tool"], step["called_at"], step["returned_at"]) for step in run["steps"]]
    assert times == [("search", AT + 2000, AT + 3000), ("buy", AT + 5000, AT + 6000)]
    assert not any(step["error"] for step in run["steps"])


@pytest.mark.parametrize("how", SMITHS)
def test_every_form_of_langsmith(how: str, tmp_path: Path) -> None:
    runs, unmapped = read(langsmith_runs, tmp_path, SMITHS[how])
    check(runs)
    dropped = sum(unmapped.duplicates.values())
    assert dropped == {"twice": 2, "nested, and by themselves": 2}.get(how, "end" in how)


@pytest.mark.parametrize("how", FUSES)
def test_every_form_of_langfuse(how: str, tmp_path: Path) -> None:
    runs, unmapped = read(langfuse_runs, tmp_path, FUSES[how])
    check(runs)
    assert sum(unmapped.duplicates.values()) == how.startswith("updated")


def test_over_several_files(tmp_path: Path) -> None:
    for importer, (first, second) in ((langsmith_runs, SMITH), (langfuse_runs, FUSE)):
        runs, unmapped = read(importer, tmp_path, lines(first), lines(first, second))
        check(runs)
        assert sum(unmapped.duplicates.values()) == 1


def test_observations_inside_a_span_are_not_calls_and_spans_only_on_request(tmp_path: Path) -> None:
    spans = (fuse(0, "agent", "SPAN"), *(
        {**each, "type": "SPAN", "parentObservationId": "o0"} for each in FUSE))  # fmt: skip
    runs, unmapped = read(langfuse_runs, tmp_path, lines(*spans))
    assert runs == []
    assert unmapped.counts == {"observations of type SPAN": 3}
    runs, unmapped = read(langfuse_runs, tmp_path, lines(*spans), spans_are_calls=True)
    check(runs)


@pytest.mark.parametrize("number", [0, 1])
def test_an_end_before_the_start_is_counted(number: int, tmp_path: Path) -> None:
    entry: dict[str, Any] = (
        {**SMITH[0], "end_time": "2025-01-01"}, {**FUSE[0], "endTime": "2025-01-01"}
    )[number]  # fmt: skip
    (run,), unmapped = read((langsmith_runs, langfuse_runs)[number], tmp_path, lines(entry))
    assert run["steps"][0]["returned_at"] is None
    assert [*unmapped.counts.values()] == [1]
    assert "before their start" in next(iter(unmapped.counts))


def messages(*tools: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, tool in enumerate(tools):
        asked = {"id": f"c{number}", "name": tool, "arguments": {}, "requestor": "assistant"}
        answer = {"id": f"c{number}", "role": "tool", "content": "{}", "error": tool == "bad",
                  "timestamp": f"2026-01-01T00:00:1{number}"}  # fmt: skip
        found += [
            {
                "role": "assistant",
                "tool_calls": [asked],
                "timestamp": f"2026-01-01T00:00:0{number}",
            },
            answer if number % 2 else {"role": "tool", "tool_messages": [answer]},
        ]
    return found


INFO = {"environment_info": {"domain_name": "telecom"}, "agent_info": {"llm": "m"}}


def simulation(number: int, *tools: str) -> dict[str, Any]:
    return {"id": f"s{number}", "task_id": f"t{number}", "trial": 0, "messages": messages(*tools)}


def ticks(number: int, *tools: str) -> dict[str, Any]:
    made = [
        {"tick_id": n, "timestamp": f"2026-01-01T00:00:0{n}",
         "agent_tool_calls": [{"id": f"c{n}", "name": tool, "arguments": {}}],
         "user_tool_calls": [{"id": "u", "name": "reboot", "arguments": {}}],
         "agent_tool_results": [{"id": f"c{n}", "role": "tool", "error": False,
                                 "timestamp": f"2026-01-01T00:00:0{n}"}]}
        for n, tool in enumerate(tools)
    ]  # fmt: skip
    return {**simulation(number), "messages": None, "ticks": made}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results as tau2-bench writes them: an index, and a file a simulation."""
    folder = tmp_path / "run"
    (folder / "simulations").mkdir(parents=True)
    index = [{"id": f"s{n}", "task_id": f"t{n}", "trial": 0} for n in range(3)]
    made = {"info": INFO, "tasks": [{"id": "t0"}], "simulation_index": index, "simulations": []}
    (folder / "results.json").write_text(json.dumps(without(made, "simulations"), indent=2))
    for each in (simulation(0, "find", "bad"), ticks(1, "look", "pay")):
        (folder / "simulations" / f"{each['id']}.json").write_text(json.dumps(each, indent=2))
    return folder


def taken(*given: Path) -> tuple[dict[str, list[str]], Unmapped, list[Run]]:
    unmapped = Unmapped()
    runs = list(tau_runs(sources(map(str, given), unmapped), unmapped))
    return {r["task_id"]: [s["tool"] for s in r["steps"]] for r in runs}, unmapped, runs


@pytest.mark.parametrize("which", ["folder", "above", "results"])
def test_a_folder_of_tau2_bench(results: Path, which: str) -> None:
    given = {"folder": results, "above": results.parent, "results": results / "results.json"}
    found, unmapped, runs = taken(given[which])
    assert found == {"t0": ["find", "bad"], "t1": ["look", "pay"]}
    assert {(run["domain"], run["agent_model"]) for run in runs} == {("telecom", "m")}
    assert [step["error"] for step in runs[0]["steps"]] == [False, True]
    assert runs[0]["steps"][0]["returned_at"] - runs[0]["steps"][0]["called_at"] == 10_000
    assert unmapped.counts == {
        "simulations of the index without a file in simulations/": 1,
        "tool calls of the simulated user": 2,
    }


def test_one_simulation_of_a_folder(results: Path) -> None:
    found, _, (run,) = taken(results / "simulations" / "s0.json")
    assert found == {"t0": ["find", "bad"]}
    assert run["domain"] == "telecom"


def test_a_simulation_that_is_there_twice_counts_once(results: Path, tmp_path: Path) -> None:
    one = tmp_path / "all.json"
    part = [simulation(0, "find"), simulation(7, "other")]
    one.write_text(json.dumps({"info": INFO, "simulations": part}))
    found, unmapped, _ = taken(one, results, one)
    assert found == {"t0": ["find", "bad"], "t7": ["other"], "t1": ["look", "pay"]}
    assert unmapped.duplicates == {"files": 1, "simulations": 1}


def test_other_files_of_a_folder_are_counted(results: Path) -> None:
    (results / "tasks.json").write_text('[{"id": "t0"}]')
    (results / "notes.txt").write_text("no results")
    found, unmapped, _ = taken(results)
    assert len(found) == 2
    assert unmapped.counts["files of another form"] == 1


SECOND = fuse(3, "buy", traceId="t2")
SESSIONS = {
    "traces": lines(
        {"id": "t2", "sessionId": "S", "observations": [SECOND]},
        {"id": "t1", "sessionId": "S", "observations": [fuse(1, "find")]},
    ),
    "observations": lines({**SECOND, "sessionId": "S"}, fuse(1, "find", sessionId="S")),
    "snake": lines({**SECOND, "session_id": "S"}, fuse(1, "find", session_id="S")),
    "attributes": lines(
        {**SECOND, "metadata": {"attributes": {"session.id": "S"}}},
        fuse(1, "find", metadata=json.dumps({"attributes": {"session.id": "S"}})),
    ),
    "session": json.dumps(
        {"id": "S", "projectId": "shop",
         "traces": [{"id": "t2", "observations": [SECOND]},
                    {"id": "t1", "observations": [fuse(1, "find")]}]}
    ),
    "apart": lines({"id": "t1", "sessionId": "S"}, {"id": "t2", "sessionId": "S"}, SECOND,
                   fuse(1, "find")),
    "download": lines(
        {"trace": {"id": "t2", "sessionId": "S"}, "observations": [SECOND]},
        {"trace": {"id": "t1", "sessionId": "S"}, "observations": [fuse(1, "find")]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("how", SESSIONS)
def test_traces_of_a_session_of_langfuse_are_one_run(how: str, split: bool, tmp_path: Path) -> None:
    texts = SESSIONS[how].splitlines(keepends=True) if split else [SESSIONS[how]]
    (run,), unmapped = read(langfuse_runs, tmp_path, *texts)
    assert [step["tool"] for step in run["steps"]] == ["find", "buy"]
    assert run["task_id"] == "S"
    assert not unmapped.counts


USERS = {
    "observations": [fuse(1, "find", sessionId="S", userId="u1"),
                     {**SECOND, "sessionId": "S", "userId": "u2"}],
    "snake": [fuse(1, "find", session_id="S", user_id="u1"),
              {**SECOND, "session_id": "S", "user_id": "u2"}],
    "traces": [{"id": "t1", "sessionId": "S", "userId": "u1", "observations": [fuse(1, "find")]},
               {"id": "t2", "sessionId": "S", "userId": "u2", "observations": [SECOND]}],
    "apart": [{"id": "t1", "sessionId": "S", "userId": "u1"},
              {"id": "t2", "sessionId": "S", "userId": "u2"}, fuse(1, "find"), SECOND],
    "attributes": [
        fuse(1, "find", metadata={"attributes": {"session.id": "S", "user.id": "u1"}}),
        {**SECOND, "metadata": {"attributes": {"session.id": "S", "user.id": "u2"}}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("how", USERS)
def test_a_session_id_of_two_users_is_two_runs(how: str, tmp_path: Path) -> None:
    runs, _ = read(langfuse_runs, tmp_path, lines(*USERS[how]))
    assert [[step["tool"] for step in run["steps"]] for run in runs] == [["find"], ["buy"]]


@pytest.mark.parametrize("second", [{}, {"userId": "u1"}])
def test_a_session_whose_traces_do_not_all_name_the_user_is_one_run(
    second: dict[str, str], tmp_path: Path
) -> None:
    first = fuse(1, "find", sessionId="S", userId="u1")
    (run,), _ = read(langfuse_runs, tmp_path, lines(first, {**SECOND, "sessionId": "S", **second}))
    assert [step["tool"] for step in run["steps"]] == ["find", "buy"]


def test_traces_of_other_sessions_stay_apart(tmp_path: Path) -> None:
    entries = lines(fuse(1, "find", sessionId="S"), {**SECOND, "sessionId": "T"})
    runs, _ = read(langfuse_runs, tmp_path, entries)
    assert [run["task_id"] for run in runs] == ["S", "T"]


def test_a_tool_that_is_named_as_the_end_of_a_run_is_not_mapped(tmp_path: Path) -> None:
    (run,), unmapped = read(langfuse_runs, tmp_path, lines(fuse(1, "<end>"), fuse(3, "buy")))
    assert [step["tool"] for step in run["steps"]] == ["buy"]
    assert sum(unmapped.counts.values()) == 1
