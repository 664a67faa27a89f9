"""The arguments of calls and the query of a run in its events, bounded, and only if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import headstart
from headstart.arguments.checks import InvalidArgument
from headstart.scrubbing.scrubber import Scrubber, Scrubbing
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.logged_arguments import MAX_CHARACTERS, logged_arguments
from headstart.speculation.speculator import AsyncSpeculator
from memory.episodes.calls import arguments_text
from tests.client.recording_emitter import Taken
from tests.client.speculation.scripted import CONTEXT, TOOLS, Scripted
from tests.client.speculation.turns import Log, speculate

CALLS = [
    RequestedCall("c1", "search", '{"q": "a"}'),
    RequestedCall("c2", "pay", {"sum": 2, "token": "abc-secret-1"}),
    RequestedCall("c3", "search", {"q": "b"}),
]


async def make(tool: str, arguments: Mapping[str, object]) -> str:
    return f"{tool} {arguments}"


def logged(guess: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Return the arguments of each `task_complete` of a run, by tool and kind."""
    found: dict[str, Any] = {}

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        predictor = Scripted(("search", guess))
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        run.user("Where is order 7?")
        run.model_started(make)
        await run.guessed()
        matches = run.model_answered(CALLS)
        for call in CALLS:
            match = matches.get(call.id)
            result = await match.result() if match is not None else "made"
            run.tool_finished(call.id, result, duration_ms=1.0)
        run.finished()
        for event in log.of("task_complete"):
            kind = event["data"].get("prediction", {}).get("was_correct")
            name = {None: event["task_id"], True: "hit", False: "miss"}[kind]
            found[name] = event["data"].get("arguments")

    speculate(test, **options)
    return found


def test_each_call_is_logged_with_its_arguments_once() -> None:
    assert logged({"q": "b"}) == {
        "c1": {"q": "a"}, "c2": {"sum": 2, "token": "abc-secret-1"}, "hit": {"q": "b"},
    }  # fmt: skip
    wrong = logged({"q": "x"})
    assert wrong["miss"] is None, "a guess that was not called"
    assert wrong["c3"] == {"q": "b"}


def test_arguments_are_logged_only_if_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(logged({"q": "b"}, log_arguments=False).values()) == {None}
    monkeypatch.setenv("HEADSTART_LOG_ARGUMENTS", "0")
    assert set(logged({"q": "b"}).values()) == {None}
    assert logged({"q": "b"}, log_arguments=True)["c1"] == {"q": "a"}
    monkeypatch.setenv("HEADSTART_LOG_ARGUMENTS", "no")
    with pytest.raises(InvalidArgument, match="HEADSTART_LOG_ARGUMENTS"):
        logged({"q": "b"})
    with pytest.raises(InvalidArgument, match="log_arguments"):
        logged({"q": "b"}, log_arguments="no")


def test_a_call_that_was_changed_is_logged_as_it_was_made() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, None, CONTEXT, TOOLS)
        run.model_answered([RequestedCall("c1", "search", {"q": "a"})])
        run.tool_retried("c1", "search", {"q": "approved"})
        run.tool_finished("c1", "found")
        run.tool_retried("c1", "search")
        run.tool_finished("c1", "found")
        run.turn_finished()
        run.tool_retried("c1", "search", {"q": "late"})
        run.tool_finished("c1", "found")
        run.tool_retried(["no id"], "search", {"q": "late"})  # type: ignore[arg-type]
        found = [event["data"]["arguments"]["q"] for event in log.of("task_complete")]
        assert found == ["approved", "approved", "late"]

    speculate(test)


def test_the_query_is_logged_also_where_others_log_the_end(tmp_path: Any) -> None:
    async def test(speculator: AsyncSpeculator, _log: Log) -> None:
        emitter = Taken(tmp_path / "spool")
        speculator._emitter = emitter
        with headstart.workflow(workflow_type="refund", emitter=emitter, flush_s=0) as scope:
            run = AgentRun[str](speculator, None, {"workflow_type": "refund"}, TOOLS)
            run.user("Where is order 7?")
            run.user("Quickly, please.")
            run.model_answered(CALLS)
            for call in CALLS:
                run.tool_finished(call.id)
            run.finished(response="Here.")
            scope.complete("success")
        queries = [event.get("data", {}).get("query") for event in emitter.events]
        assert queries == ["Where is order 7?", None, None, None]
        emitter._close_buffer(1.0)

    speculate(test)


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no text")


NESTED: Any = {}
for _ in range(30):
    NESTED = {"a": NESTED}
CYCLE: Any = {}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    "arguments",
    [
        {"q": "x" * MAX_CHARACTERS}, {"q": "é" * MAX_CHARACTERS}, NESTED, CYCLE, {"n": 2**70},
        {"o": object()}, Odd(), {"half": "\ud800"},
    ],
)  # fmt: skip
def test_what_is_too_long_or_no_json_is_cut(arguments: Any) -> None:
    found = logged_arguments(arguments)
    assert isinstance(found, dict)
    assert list(found) == ["$cut"]
    assert len(found["$cut"]) == 32


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (None, None), ("", {}), ({}, {}), ('{"b": 1, "a": [2]}', {"a": [2], "b": 1}),
        ("not JSON", "not JSON"), ({"wide": [[]] * 40}, {"wide": [[]] * 40}), ({1: 2}, {"1": 2}),
        ({"q": "é" * 5_000}, {"q": "é" * 5_000}),
    ],
)  # fmt: skip
def test_other_arguments_are_logged_whole(arguments: Any, expected: Any) -> None:
    assert logged_arguments(arguments) == expected


def test_later_changes_of_the_arguments_change_nothing() -> None:
    arguments = {"a": [1]}
    found = logged_arguments(arguments)
    arguments["a"].append(2)
    assert found == {"a": [1]}


def test_a_hash_is_that_of_the_episode() -> None:
    long = {"z": "x" * 9_000, "a": [1, "b"]}
    assert arguments_text(logged_arguments(long)) == arguments_text(long)


def test_secrets_in_arguments_are_scrubbed() -> None:
    line = b'{"event_type":"task_complete","data":{"arguments":{"token":"abc-secret-1"}}}'
    assert b"abc-secret-1" not in Scrubber(Scrubbing())(line)
