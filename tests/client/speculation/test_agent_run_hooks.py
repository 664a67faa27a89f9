"""Rarely called hooks of a run: handoffs, calls made again, turns and models that end early."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headstart.arguments.checks import InvalidArgument
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.thread_agent_run import ThreadAgentRun
from tests.client.speculation.scripted import CONTEXT, Scripted
from tests.client.speculation.threads import WAIT_S, speculating, until
from tests.client.speculation.turns import Log, speculate

READ_ONLY = {"readOnlyHint": True}
GUESSES = (("search", {}), ("lookup", {}), ("pay", {}))


def make(tool: str, arguments: Mapping[str, object]) -> str:
    return tool


def test_only_what_the_model_is_offered_is_guessed() -> None:
    made: list[str] = []

    async def make_call(tool: str, arguments: Mapping[str, object]) -> str:
        made.append(tool)
        return tool

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        first: dict[str, object] = {"search": READ_ONLY, "pay": {"destructiveHint": True}}
        run = AgentRun[str](speculator, Scripted(*GUESSES), CONTEXT, first, guess_s=WAIT_S)

        async def started() -> list[str]:
            made.clear()
            run.model_started(make_call)
            await run.guessed()
            await asyncio.sleep(0)
            run.model_answered([])
            return made

        assert await started() == ["search"]
        run.offered({"lookup": READ_ONLY, "pay": READ_ONLY})  # after a handoff
        assert await started() == ["lookup"], "pay was declared destructive before"
        run.offered({})
        assert await started() == []
        with pytest.raises(InvalidArgument):
            run.offered({"search": 7})
        assert await started() == [], "what is refused changes nothing"
        run.finished()

    assert speculate(test, allowed=())["started"] == 2


def test_threads_guess_what_is_offered_too() -> None:
    with speculating(allowed=()) as (speculator, log):
        run = ThreadAgentRun[str](
            speculator, Scripted(*GUESSES), CONTEXT, {"search": READ_ONLY}, guess_s=WAIT_S
        )
        run.offered({"lookup": READ_ONLY})
        run.model_started(make)
        assert run.guessed() == 1
        matches = run.model_answered([RequestedCall("1", "lookup", {})])
        assert list(matches) == ["1"]
        assert [
            event["data"]["prediction"]["tool_id"] for event in log.of("speculation_start")
        ] == ["lookup"]
        run.finished()


def test_a_call_that_is_made_again_is_logged_again() -> None:
    predictor = Scripted()
    with speculating() as (speculator, log):
        run = ThreadAgentRun[str](speculator, predictor, CONTEXT, guess_s=WAIT_S)
        run.model_answered([RequestedCall("1", "search", {})])
        run.tool_finished("1", "no route", error=True)
        run.tool_finished("1", "found")  # already ended: changes nothing
        run.tool_retried("1", "search")
        run.tool_finished("1", "found")
        run.finished()
        until(lambda: len(predictor.received) == 3)
        steps = [(event["task_id"], event["success"]) for event in log.of("task_complete")]
    assert steps == [("1", False), ("1", True)]
    assert predictor.received[1:] == [("search", "no route", True), ("search", "found", False)]


def test_a_turn_that_has_ended_gives_no_results() -> None:
    with speculating() as (speculator, log):
        run = ThreadAgentRun[str](speculator, Scripted(*GUESSES), CONTEXT, guess_s=WAIT_S)
        run.model_started(make)
        assert run.guessed() == 1
        match = run.model_answered([RequestedCall("1", "search", {})])["1"]
        run.turn_finished()
        assert speculator.stats()["open"] == 0
        with pytest.raises(GuessFailed):
            match.result(WAIT_S)
        run.tool_finished("1", "found")
        outcomes = [event["data"]["prediction"] for event in log.of("task_complete")]
        assert [outcome.get("failed", False) for outcome in outcomes].count(True) == 1
        run.finished()


def test_a_failed_model_call_discards_the_guesses_of_threads() -> None:
    made: list[Any] = []
    with speculating() as (speculator, log):
        run = ThreadAgentRun[str](speculator, Scripted(("search", {})), CONTEXT, guess_s=WAIT_S)
        run.model_started(lambda tool, arguments: made.append(tool))  # type: ignore[arg-type]
        assert run.guessed() == 1
        run.model_failed()
        stats = speculator.stats()
        assert (stats["discarded"], stats["open"]) == (1, 0)
        run.finished("failure")
        assert log.of("task_complete") == []
        (end,) = log.of("workflow_complete")
        assert end["data"]["outcome"] == "failure"
