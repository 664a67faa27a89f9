"""One run whose calls become known one by one: its turns, answers and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headstart.prediction.interface import ToolCall
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator
from tests.client.speculation.scripted import CONTEXT, TOOLS, Scripted
from tests.client.speculation.turns import Log, speculate


async def make(tool: str, arguments: Mapping[str, object]) -> str:
    await asyncio.sleep(0.001)
    return f"{tool} {arguments}"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.001)


def outcomes(log: Log) -> list[tuple[str, bool | None]]:
    """Return the tools of the completed calls, and whether a guess of them was right."""
    return [
        (event["tool_id"], event["data"].get("prediction", {}).get("was_correct"))
        for event in log.of("task_complete")
    ]


def test_calls_that_come_one_by_one() -> None:
    predictor = Scripted(("search", {"q": "a"}), ("search", {"q": "b"}))

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        assert await run.guessed() == 2
        assert run.call_requested(RequestedCall("1", "pay", {"sum": 1})) is None
        match = run.call_requested(RequestedCall("2", "search", {"q": "b"}))
        assert match is not None
        answer = await match.result()
        run.tool_finished("2", answer)
        run.tool_finished("1", "paid", duration_ms=50.0)
        assert outcomes(log) == [("pay", None)], "other calls may follow"
        run.turn_finished()
        assert sorted(outcomes(log), key=str) == [("pay", False), ("pay", None), ("search", True)]
        run.finished()
        assert speculator.stats()["open"] == 0
        assert speculator.stats()["discarded"] == 1
        await until(lambda: len(predictor.received) == 3)

    speculate(test)
    calls, *results = predictor.received  # results come after the calls, as the predictor needs it
    assert [call.tool for call in calls] == ["pay", "search"]
    assert [tool for tool, _, _ in results] == ["search", "pay"]


def test_a_match_whose_result_is_not_asked_for_has_failed() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        predictor = Scripted(("search", {"q": "a"}))
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        await run.guessed()
        assert run.call_requested(RequestedCall("1", "search", {"q": "a"})) is not None
        run.tool_finished("1", "made by the caller")
        run.turn_finished()
        run.finished()
        assert speculator.stats()["failed"] == 1
        assert len(log.of("task_complete")) == 2

    speculate(test)


def test_a_reply_makes_guesses_wrong_and_a_run_can_end_in_a_turn() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        predictor = Scripted(("search", {"q": "a"}))
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        await run.guessed()
        run.model_answered(())
        run.turn_finished()
        assert speculator.stats()["discarded"] == 1
        run.call_requested(RequestedCall("1", "pay", {}))
        run.finished("failure")
        run.finished()
        assert len(log.of("workflow_complete")) == 1
        assert speculator.stats()["open"] == 0

    speculate(test)


def test_a_call_that_was_changed_replaces_its_earlier_form() -> None:
    """As where a person approves it with other arguments: the guess of those answers it."""
    predictor = Scripted(("search", {"q": "a"}), ("search", {"q": "b"}))

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        assert await run.guessed() == 2
        first = run.call_requested(RequestedCall("1", "search", {"q": "a"}))
        changed = run.call_requested(RequestedCall("1", "search", {"q": "b"}))
        assert first is not None
        assert changed is not None
        run.tool_finished("1", await changed.result())
        run.turn_finished()
        assert outcomes(log) == [("search", False), ("search", True)]
        with pytest.raises(GuessFailed):
            await first.result()
        run.finished()
        await until(lambda: len(predictor.received) == 2)

    speculate(test)
    assert predictor.received[0] == [ToolCall("search", {"q": "b"})]


def test_a_result_that_is_being_used_stays_with_its_call() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, Scripted(("search", {})), CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        await run.guessed()
        match = run.call_requested(RequestedCall("1", "search", {}))
        assert match is not None
        answer = await match.result()
        assert run.call_requested(RequestedCall("1", "search", {})) is None
        run.tool_finished("1", answer)
        run.model_started(make)  # ends the turn
        assert outcomes(log) == [("search", True)]
        run.finished()

    assert speculate(test)["failed"] == 0


@pytest.mark.parametrize("call", [None, 7, RequestedCall([], "search", {})])  # type: ignore[arg-type]
def test_what_is_no_call_is_a_warning(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    predictor = Scripted(("search", {}))

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        await run.guessed()
        assert run.call_requested(call) is None
        run.turn_finished()
        assert speculator.stats()["open"] == 0
        run.finished()

    assert speculate(test)["unpredicted"] == 1
    assert "a turn goes on without its guesses" in caplog.text
    assert predictor.received == [], "nothing is learned from it"
