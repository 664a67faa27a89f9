"""Turns whose calls are made one by one, before all of them are known."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from headstart.arguments.checks import InvalidArgument
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import GuessedCall, RequestedCall
from headstart.speculation.speculator import AsyncSpeculator
from tests.client.speculation.scripted import TOOLS, Scripted
from tests.client.speculation.turns import CONTEXT, Log, speculate

SEARCH = RequestedCall("c1", "search", {"q": "a"})
OTHER = RequestedCall("c2", "lookup", {})
GUESSES = [GuessedCall("search", {"q": "a"}, 0.9), GuessedCall("search", {"q": "b"}, 0.9)]


async def make(tool: str, arguments: Mapping[str, object]) -> str:
    await asyncio.sleep(0.001)
    return f"{tool} {arguments}"


def outcomes(log: Log) -> list[tuple[str, bool]]:
    found = [event["data"].get("prediction") for event in log.of("task_complete")]
    return [(each["tool_id"], each["was_correct"]) for each in found if each is not None]


def test_a_guess_answers_a_call_before_all_are_known() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        trying = speculator.turn(CONTEXT, GUESSES, make, limit=2)
        await trying.start()
        assert trying.request(OTHER) is None
        match = trying.request(SEARCH)
        assert match is not None
        assert await match.result() == "search {'q': 'a'}"
        assert log.of("task_complete") == [], "another call may follow"
        assert trying.request(SEARCH) is None, "once"
        assert trying.settle([OTHER, SEARCH]) == {}
        assert outcomes(log) == [("search", False)]
        trying.finished("c2", 20.0, success=True)
        assert outcomes(log) == [("search", False), ("search", True)]
        trying.close()

    assert speculate(test)["discarded"] == 1


def test_a_call_that_was_requested_but_not_made_is_no_hit() -> None:
    """As one that is denied: the guess was right, and saved nothing."""

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        trying = speculator.turn(CONTEXT, GUESSES[:1], make)
        await trying.start()
        assert list(trying.settle([SEARCH])) == ["c1"]
        trying.close()
        assert outcomes(log) == [("search", False)]

    assert speculate(test)["failed"] == 1


@pytest.mark.parametrize("end", ["settle", "close"])
def test_a_turn_that_has_ended_answers_nothing(end: str) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        trying = speculator.turn(CONTEXT, GUESSES[:1], make)
        assert trying.request(SEARCH) is None, "not started"
        await trying.start()
        trying.settle([]) if end == "settle" else trying.close()
        assert trying.request(SEARCH) is None
        trying.close()

    speculate(test)


def test_a_run_whose_calls_are_made_one_by_one() -> None:
    predictor = Scripted(("search", {"q": "a"}), ("search", {"q": "b"}))

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        assert run.call_requested(SEARCH) is None, "no call of the model has begun"
        assert [speculator.may_start(tool) for tool in ("search", "pay", "other")] == [
            True,
            False,
            False,
        ]
        run.model_started(make)
        assert await run.guessed() == 2
        match = run.call_requested(SEARCH)
        assert match is not None
        answer = await match.result()
        assert run.model_answered([SEARCH, OTHER]) == {}
        run.tool_finished("c1", answer)
        run.tool_finished("c2", "found", duration_ms=5.0)
        assert outcomes(log)[:2] == [("search", False), ("search", True)]
        run.model_started(make)
        run.finished()

    speculate(test)


@pytest.mark.parametrize(
    "ms", ["40", timedelta(milliseconds=40), Decimal(40), -1.0, math.nan, True]
)
def test_a_duration_that_is_no_number_is_refused_at_the_call(ms: Any) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with speculator.turn(CONTEXT, GUESSES[:1], make) as trying:
            trying.settle([SEARCH, OTHER])
            with pytest.raises(InvalidArgument, match="duration_ms"):
                trying.finished("c2", ms)
        run: AgentRun[str] = AgentRun(speculator, Scripted(), CONTEXT, TOOLS)
        run.model_answered([OTHER])
        run.tool_finished("c2", "found", duration_ms=ms)  # a run raises nothing
        (ended,) = [each for each in log.of("task_complete") if each.get("tool_id") == "lookup"]
        assert 0.0 <= ended["data"]["result"]["execution_time_ms"] < 5_000.0

    assert speculate(test)["open"] == 0
