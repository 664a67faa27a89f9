"""Several guesses and all calls of a turn: matches, savings, and turns that are left open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headstart.prediction.interface import Evidence, PredictedCall
from headstart.speculation.calls import GuessedCall, RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.turn import Turn
from tests.client.speculation.turns import CONTEXT, FOREVER, Log, real, speculate, turn

TOOLS = {"search", "lookup", "read"}


class Tools:
    """Tools whose calls take a time of a fake clock, and end when the test ends them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.made: list[tuple[str, Any]] = []
        self._ends = dict[tuple[str, str], asyncio.Future[str]]()

    def clock(self) -> float:
        return self.now

    async def make(self, tool: str, arguments: Mapping[str, object]) -> str:
        self.made.append((tool, arguments))
        future = self._ends[tool, str(arguments)] = asyncio.get_running_loop().create_future()
        return await future

    async def end(self, tool: str, arguments: object, at_s: float) -> None:
        self.now = at_s
        self._ends[tool, str(arguments)].set_result(f"{tool} {arguments}")
        for _ in range(3):
            await asyncio.sleep(0)


def guess(tool: str, number: int, confidence: float = 0.9, **stakes: float) -> GuessedCall:
    return GuessedCall(tool, {"n": number}, confidence, **stakes)


def call(id: str, tool: str, number: int) -> RequestedCall:
    return RequestedCall(id, tool, {"n": number})


def outcomes(log: Log) -> list[tuple[Any, ...]]:
    return [
        (
            event["data"]["prediction"]["tool_id"],
            event["data"]["prediction"]["was_correct"],
            event["data"].get("result", {}).get("gain_ms"),
        )
        for event in log.of("task_complete")
    ]


def test_all_calls_of_a_turn_are_settled_at_once_and_results_come_later() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        guesses = [guess("search", 1), guess("lookup", 2), guess("read", 3)]
        trying = speculator.turn(CONTEXT, guesses, tools.make, limit=3)
        await trying.start()
        assert trying.started == 3
        tools.now = 0.4
        calls = [call("a", "lookup", 2), call("b", "search", 1), call("c", "read", 4)]
        matches = trying.settle(calls)
        assert {id: match.tool for id, match in matches.items()} == {"a": "lookup", "b": "search"}
        assert outcomes(log) == [("read", False, None)]
        assert len({event["task_id"] for event in log.of("speculation_start")}) == 3
        waiting = asyncio.create_task(matches["a"].result())
        await asyncio.sleep(0)
        await tools.end("search", {"n": 1}, 0.5)  # took 500 ms, 100 ms remained
        assert await matches["b"].result() == "search {'n': 1}"
        await tools.end("lookup", {"n": 2}, 1.0)  # took 1,000 ms, 600 ms remained
        assert await waiting == "lookup {'n': 2}"
        assert len(outcomes(log)) == 1, "what was saved depends on the third call"
        trying.finished("c", 700.0, success=True)
        # Without guesses the turn takes 1,000 ms, with them max(100, 600, 700).
        assert outcomes(log)[1:] == [
            ("search", True, pytest.approx(0.0)), ("lookup", True, pytest.approx(300.0))
        ]  # fmt: skip
        trying.close()
        assert len(outcomes(log)) == 3

    stats = speculate(test, allowed=TOOLS, clock=tools.clock)
    assert (stats["started"], stats["discarded"]) == (3, 1)


def test_without_the_durations_of_the_others_a_hit_saved_what_it_was_ahead() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with speculator.turn(CONTEXT, [guess("search", 1)], tools.make) as trying:
            tools.now = 0.4
            matches = trying.settle([call("a", "search", 1), call("b", "lookup", 2)])
            await tools.end("search", {"n": 1}, 0.5)
            assert await matches["a"].result()
            assert outcomes(log) == []
        assert outcomes(log) == [("search", True, pytest.approx(400.0))]

    speculate(test, allowed=TOOLS, clock=tools.clock)


def test_a_guess_that_was_not_started_is_logged_with_what_it_would_have_saved() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        trying = speculator.turn(CONTEXT, [guess("search", 1, 0.3)], tools.make)
        await trying.start()
        tools.now = 0.4
        assert trying.settle([call("a", "search", 1), call("b", "lookup", 2)]) == {}
        assert trying.has_outcome_of("a")
        assert not trying.has_outcome_of("b")
        trying.finished("b", 800.0)
        tools.now = 1.4
        trying.finished("a", success=True)  # 1,000 ms since the calls are known
        (end,) = log.of("task_complete")
        assert outcomes(log) == [("search", True, pytest.approx(200.0))]
        assert (end["success"], end["data"]["result"]["execution_time_ms"]) == (
                True, pytest.approx(1000.0)
            )  # fmt: skip
        trying.close()

    assert speculate(test, allowed=TOOLS, clock=tools.clock)["started"] == 0
    assert tools.made == []


def test_two_equal_calls_are_answered_by_one_guess_once() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with speculator.turn(CONTEXT, [guess("search", 1)], tools.make) as trying:
            matches = trying.settle([call("a", "search", 1), call("b", "search", 1)])
            assert list(matches) == ["a"]
            await tools.end("search", {"n": 1}, 0.5)
            assert await matches["a"].result()
        guesses = [guess("search", 1), guess("search", 1)]
        async with speculator.turn(CONTEXT, guesses, tools.make, limit=2) as trying:
            calls = [call("a", "search", 1), call("b", "search", 1), call("b", "search", 1)]
            assert sorted(trying.settle(calls)) == ["a", "b"]

    speculate(test, allowed=TOOLS, clock=tools.clock)


def test_the_limit_counts_guesses_that_a_threshold_could_start() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        guesses = [guess("pay", 1), guess("search", 1), guess("lookup", 2)]
        async with speculator.turn(CONTEXT, guesses, tools.make, limit=1) as trying:
            assert trying.started == 1
        starts = [event["data"]["prediction"] for event in log.of("speculation_start")]
        assert [(each["tool_id"], each.get("not_startable")) for each in starts] == [
            ("pay", "tool"), ("search", None)
        ]  # fmt: skip

    speculate(test, allowed=TOOLS)


def test_guesses_of_one_turn_stop_at_the_budget() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        guesses = [guess(tool, 1, cost=60.0) for tool in sorted(TOOLS)]
        async with speculator.turn(CONTEXT, guesses, tools.make, limit=3) as trying:
            assert trying.started == 2
        last = log.of("speculation_start")[-1]["data"]["prediction"]
        assert (last["speculated"], last["not_startable"]) == (False, "budget")

    speculate(test, allowed=TOOLS, wasted_per_minute=130.0)


def test_a_guess_without_a_cost_reserves_what_its_tool_wasted_before() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        for cost in (400.0, 400.0 + 0.2 * 100.0):
            async with speculator.turn(CONTEXT, [guess("search", 1)], tools.make):
                tools.now += 0.4 if cost == 400.0 else 0.5
            assert speculator._wasted.of("search") == pytest.approx(cost)
        guesses = [guess("search", number) for number in range(5)]
        async with speculator.turn(CONTEXT, guesses, tools.make, limit=5) as trying:
            assert trying.started == 2, "900 ms are wasted, and each may waste 420"
            trying.settle([])

    speculate(test, allowed=TOOLS, clock=tools.clock, wasted_per_minute=2000.0)


def test_the_evidence_of_a_guess_is_logged() -> None:
    evidence = Evidence(40, 0.95, 0.97, 12, "arguments")

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        guesses = [PredictedCall("search", {"n": 1}, 0.9, evidence), guess("lookup", 1)]
        async with speculator.turn(CONTEXT, guesses, Tools().make, limit=2):
            pass
        one, other = log.of("speculation_start")
        assert one["data"]["prediction"]["evidence"] == {
            "tries": 40, "tool_probability": 0.95, "arguments_probability": 0.97, "repeats": 12,
            "source": "arguments",
        }  # fmt: skip
        assert one["data"]["prediction"]["calibrated"] is True
        assert not {"evidence", "calibrated"} & other["data"]["prediction"].keys()

    speculate(test, allowed=TOOLS)


def test_a_tool_that_changes_its_arguments_does_not_change_the_guess() -> None:
    async def run(tool: str, arguments: dict[str, object]) -> str:
        arguments.clear()
        return "found"

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with speculator.turn(CONTEXT, [guess("search", 1)], run) as trying:
            assert "a" in trying.settle([call("a", "search", 1)])

    speculate(test)


def test_a_call_that_the_framework_made_itself_discards_its_guess() -> None:
    tools = Tools()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with speculator.turn(CONTEXT, [guess("search", 1)], tools.make) as trying:
            matches = trying.settle([call("a", "search", 1)])
            trying.finished("a", 30.0, success=True)
            with pytest.raises(GuessFailed):
                await matches["a"].result()
        (end,) = log.of("task_complete")
        assert end["data"]["prediction"]["failed"] is True
        assert not trying.has_outcome_of("a")

    speculate(test)


def test_a_result_in_another_event_loop_is_none() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, hangs) as trying:
            match = trying.settle(real())["1"]
            with pytest.raises(GuessFailed, match="another event loop"):
                await asyncio.to_thread(asyncio.run, match.result())

    assert speculate(test)["failed"] == 1


async def hangs() -> None:
    await asyncio.sleep(FOREVER)


async def left_open(speculator: AsyncSpeculator, count: int = 1) -> list[Turn[Any]]:
    turns = [turn(speculator, hangs) for _ in range(count)]
    for each in turns:
        await each.start()
    return turns


def test_a_turn_that_is_left_open_is_closed_by_age() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        (trying,) = await left_open(speculator)
        async with asyncio.timeout(30):
            while speculator.stats()["open"]:  # noqa: ASYNC110 - of a timer
                await asyncio.sleep(0.005)
        assert trying.settle(real()) == {}, "hooks that come late do no harm"
        trying.finished("1", 3.0)
        trying.close()
        assert log.of("task_complete") == [], "the requested calls are not known"

    stats = speculate(test, open_s=0.02)
    assert (stats["reaped"], stats["discarded"]) == (1, 1)


def test_open_turns_are_bounded_in_number() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        speculator._open._most = 3
        turns = await left_open(speculator, 5)
        assert speculator.stats()["open"] == 3
        assert turns[0].settle(real()) == {}
        assert list(turns[4].settle(real())) == ["1"]
        await speculator.close()

    stats = speculate(test)
    assert (stats["reaped"], stats["discarded"], stats["failed"]) == (2, 5, 1)


def test_closing_a_speculator_closes_its_turns() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with speculator:
            trying, _ = await left_open(speculator, 2)
            waiting = asyncio.create_task(trying.settle(real())["1"].result())
            await asyncio.sleep(0)
        with pytest.raises(GuessFailed):
            await waiting
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert len(log.of("task_complete")) == 1
        logged = len(log.events)
        async with turn(speculator, hangs) as late:
            assert (late.started, late.settle(real())) == (0, {})
        assert len(log.events) == logged

    assert speculate(test)["discarded"] == 2
