"""What imports of tau-bench and tau2-bench keep of calls: arguments, results, turns, messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from replay.evaluation.recorded_run import run_of_record
from replay.importers.agent_runs import Run, Unmapped
from replay.importers.tau_bench import tau_runs

HI, ASK, ID, SURE = "Hi! A flight, please.", "Your user id?", "mia_li_3668", "Let me look."


def call(id: str, name: str, arguments: Any) -> dict[str, Any]:
    """A call in OpenAI's form, as tau-bench has it."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def imported(folder: Path, document: Any, name: str) -> tuple[Run, Unmapped]:
    file, unmapped = folder / name, Unmapped()
    file.write_text(json.dumps(document))
    (run,) = tau_runs(file, unmapped)
    return run, unmapped


def test_historical_trajectories_of_tau_bench(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "# Airline policy"},
        {"role": "user", "content": HI},
        {"role": "assistant", "content": ASK, "tool_calls": None},
        {"role": "user", "content": ID},
        {"role": "assistant", "content": SURE, "tool_calls": [
            call("a", "get_user_details", '{"user_id": "mia_li_3668"}'),
            call("b", "list_all_airports", ""),
        ]},
        {"role": "tool", "tool_call_id": "a", "name": "get_user_details",
         "content": '{"membership": "gold"}'},
        {"role": "tool", "tool_call_id": "b", "name": "list_all_airports", "content": "Error: no"},
        {"role": "assistant", "content": None, "tool_calls": [call("c", "think", {"id": 1})]},
        {"role": "tool", "tool_call_id": "c", "name": "think", "content": ""},
        {"role": "assistant", "content": "Bye."},
        {"role": "user", "content": "###STOP###"},
    ]  # fmt: skip
    entry = {"task_id": 3, "reward": 1.0, "info": {}, "traj": messages, "trial": 0}
    run, unmapped = imported(tmp_path, [entry], "gpt-4o-airline.json")
    details, airports, think = run["steps"]
    assert (details["args"], details["result"]) == ({"user_id": ID}, {"membership": "gold"})
    assert (details["user_before"], details["said_before"]) == ([HI, ID], [None, ASK, SURE])
    assert (airports["args"], airports["result"], airports["error"]) == ({}, "Error: no", True)
    assert (airports["user_before"], airports["said_before"]) == ([], [None])
    assert (think["args"], think["result"]) == ({"id": 1}, "")
    assert [step["turn"] for step in run["steps"]] == [1, 1, 2]
    assert (run["user_after"], run["said_after"]) == (["###STOP###"], ["Bye.", None])
    assert not unmapped.incomplete
    assert run_of_record(run).steps[0].arguments == {"user_id": ID}  # as predictors read it


def test_simulations_of_tau2(tmp_path: Path) -> None:
    def at(second: int) -> dict[str, str]:
        return {"timestamp": f"2025-06-01T10:00:0{second}"}

    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": ASK, **at(0)},
        {"role": "user", "content": HI, **at(1)},
        {"role": "assistant", "content": None, **at(2), "tool_calls": [
            {"id": "a", "name": "get_line", "arguments": {"id": "L1"}, "requestor": "assistant"},
            {"id": "b", "name": "get_bill", "arguments": "{cut", "requestor": "assistant"},
        ]},
        {"role": "tool", "tool_messages": [
            {"id": "a", "role": "tool", "content": '[{"on": true}]', "error": False, **at(3)},
            {"id": "b", "role": "tool", "content": "not found", "error": True, **at(4)},
        ]},
        {"role": "user", "content": None, **at(5), "tool_calls": [
            {"id": "a", "name": "reboot", "arguments": {}, "requestor": "user"}]},
        {"role": "tool", "id": "a", "requestor": "user", "content": "rebooted", **at(6)},
        {"role": "user", "content": ID, **at(7)},
    ]  # fmt: skip
    info = {"environment_info": {"domain_name": "telecom"}, "agent_info": {"llm": "m"}}
    simulation = {"id": "s1", "task_id": "t", "trial": 0, "messages": messages}
    run, unmapped = imported(tmp_path, {"info": info, "simulations": [simulation]}, "results.json")
    line, bill = run["steps"]
    assert (line["args"], line["result"], line["error"]) == ({"id": "L1"}, [{"on": True}], False)
    assert (bill["args"], bill["result"], bill["error"]) == (None, "not found", True)
    assert (line["user_before"], line["said_before"]) == ([HI], [ASK, None])
    assert line["called_at"] - line["seen_at"] == 1000
    assert run["user_after"] == [ID]
    assert unmapped.incomplete == {"calls without arguments by name": 1}
    assert unmapped.counts == {"tool calls of the simulated user": 1}
