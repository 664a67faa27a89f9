"""One run of an agent as a framework's hooks report it: guesses, answers, and its events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import headstart
from headstart.prediction.interface import ToolCall
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator
from tests.client.speculation.scripted import CONTEXT, EVIDENCE, TOOLS, Scripted
from tests.client.speculation.turns import Log, speculate


async def make(tool: str, arguments: Mapping[str, object]) -> str:
    await asyncio.sleep(0.001)
    return f"{tool} {arguments}"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.001)


def test_a_run_answers_learns_and_logs() -> None:
    predictor = Scripted(("search", {"q": "a"}), ("pay", {"sum": 1}), ("unknown", {}))

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=30.0)
        run.user("Where is order 7?")
        run.model_started(make)
        assert await run.guessed() == 1
        calls = [
            RequestedCall("c1", "search", '{"q": "a"}'),
            RequestedCall("c2", "pay", {"sum": 2}),
        ]
        matches = run.model_answered(calls, "I look it up.")
        assert list(matches) == ["c1"]
        answer = await matches["c1"].result()
        assert answer == "search {'q': 'a'}"
        run.tool_finished("c1", answer)
        assert len(log.of("task_complete")) == 1, "of the wrong guess; the hit waits for c2"
        run.tool_finished("c2", "declined", error=True, duration_ms=25.0)
        run.model_started(make)
        await run.guessed()
        assert run.model_answered([], "It is on its way.") == {}
        run.finished(response="It is on its way.")
        run.finished()
        await until(lambda: len(predictor.received) == 7)
        ids = {event["workflow_id"] for event in log.events}
        assert ids == {run.workflow_id}
        assert {event["user_id"] for event in log.events} == {"u7"}
        steps = [
            (event["tool_id"], event["success"], event["data"].get("prediction") is None)
            for event in log.of("task_complete")
            if event.get("tool_id")
        ]
        assert steps == [("pay", None, False), ("search", True, False), ("pay", False, True)]
        (end,) = log.of("workflow_complete")
        assert (end["data"]["query"], end["data"]["outcome"]) == ("Where is order 7?", "success")
        started = log.of("speculation_start")[0]["data"]["prediction"]
        assert started["evidence"] == EVIDENCE._asdict()

    stats = speculate(test, allowed=())
    assert (stats["unlogged"], stats["unpredicted"]) == (0, 0)
    assert predictor.received == [
        ("user", "Where is order 7?"),
        [ToolCall("search", {"q": "a"}), ToolCall("pay", {"sum": 2})],
        ("said", "I look it up."),
        ("search", "search {'q': 'a'}", False),
        ("pay", "declined", True),
        [],
        ("said", "It is on its way."),
    ]


@pytest.mark.parametrize("method", ["user", "guess"])
def test_a_predictor_that_fails_is_dropped(method: str, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*args: object) -> Any:
        raise LookupError("no such table")

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        predictor = Scripted(("search", {}))
        setattr(predictor, method, fails)
        run = AgentRun[str](speculator, predictor, CONTEXT, guess_s=30.0)
        run.user("x")
        await until(lambda: method == "guess" or run._predictor.dropped)
        for _ in range(3):
            run.model_started(make)
            assert await run.guessed() == 0
            assert run.model_answered([RequestedCall("1", "search", {})]) == {}
            run.tool_finished("1")
        run.finished()
        assert [event["event_type"] for event in log.events] == [
            *["task_complete"] * 3, "workflow_complete"
        ]  # fmt: skip

    assert speculate(test)["unpredicted"] == 1
    assert "no such table" in caplog.text


def test_a_late_guess_is_not_used_and_does_not_delay() -> None:
    hold = threading.Event()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        predictor = Scripted(("search", {}))
        guess = predictor.guess
        predictor.guess = lambda limit=3: (hold.wait(30), guess(limit))[1]  # type: ignore[method-assign]
        run = AgentRun[str](speculator, predictor, CONTEXT, guess_s=0.01)
        begun = time.monotonic()
        run.model_started(make)
        assert time.monotonic() - begun < 15.0
        assert await run.guessed() == 0
        assert speculator.stats()["unpredicted"] == 1
        assert run.model_answered([RequestedCall("1", "search", {})]) == {}
        run.model_started(make)
        await asyncio.sleep(0)
        assert run.model_answered([]) == {}, "the model was quicker than the guess"
        run.finished()
        hold.set()
        await until(lambda: len(predictor.received) == 2)
        assert log.of("speculation_start") == []

    speculate(test)


def test_a_failed_model_call_discards_its_guesses() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, Scripted(("search", {})), CONTEXT, guess_s=30.0)
        run.model_started(make)
        assert await run.guessed() == 1
        run.model_failed()
        assert speculator.stats()["discarded"] == 1
        run.finished("failure")
        assert log.of("task_complete") == []

    speculate(test)


@pytest.mark.parametrize(
    "answer", ["x", None, 5, [None], [{"id": "1"}], [RequestedCall([], "a", {})]]
)
def test_an_answer_that_is_no_list_of_calls_is_a_warning(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    predictor = Scripted(("search", {}))

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, predictor, CONTEXT, guess_s=30.0)
        run.model_started(make)
        await run.guessed()
        assert run.model_answered(answer) == {}
        run.tool_finished(answer)
        run.model_started(make)
        await run.guessed()
        (match,) = run.model_answered([RequestedCall("1", "search", {})]).values()
        run.tool_finished("1", await match.result())
        run.finished()
        assert len(log.of("workflow_complete")) == 1
        await until(lambda: predictor.received)

    assert speculate(test)["unpredicted"] == 1
    assert "a turn goes on without its guesses" in caplog.text
    assert predictor.received[0] == [ToolCall("search", {})], "nothing is learned from it"


def test_a_failed_guess_is_made_again_and_logged_as_a_call() -> None:
    async def fails(tool: str, arguments: Mapping[str, object]) -> str:
        raise OSError("no route")

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, Scripted(("search", {})), CONTEXT, guess_s=30.0)
        run.model_started(fails)
        await run.guessed()
        matches = run.model_answered([RequestedCall("1", "search", {})])
        with pytest.raises(GuessFailed, match="no route"):
            await matches["1"].result()
        with pytest.raises(GuessFailed):
            await matches["1"].result()
        run.tool_finished("1", "found", duration_ms=3.0)
        run.finished()
        outcome, step = log.of("task_complete")
        assert outcome["data"]["prediction"]["failed"] is True
        assert (step["task_id"], step["success"]) == ("1", True)

    assert speculate(test)["failed"] == 1


def test_within_a_workflow_the_scope_logs_the_end() -> None:
    class Flushed(Log):
        def flush(self, timeout_s: float) -> None: ...

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        kept = Flushed()
        speculator._emitter = kept
        async with headstart.workflow(workflow_type="refund", emitter=kept) as scope:  # type: ignore[arg-type]
            run = AgentRun[str](speculator, None, {})
            assert run.workflow_id == scope.id
            run.model_started(make)
            run.model_answered([RequestedCall("1", "search", {})])
            run.tool_finished("1", "found")
            run.finished()
        assert [event["event_type"] for event in kept.events] == [
            "task_complete", "workflow_complete"
        ]  # fmt: skip

    speculate(test)


def test_a_predictor_that_returns_no_list_is_no_guess() -> None:
    class Broken(Scripted):
        def guess(self, limit: int = 3) -> Any:
            return None

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, Broken(), CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        assert await run.guessed() == 0
        assert run.model_answered([RequestedCall("c1", "search", {})]) == {}

    speculate(test)


def test_a_predictor_that_asks_for_it_hears_of_each_run() -> None:
    class Asks(Scripted):
        def run_begun(self) -> None:
            self.received.append("begun")

    predictor = Asks()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        for _ in range(2):
            AgentRun[str](speculator, predictor, CONTEXT, TOOLS).user("Hello")
        AgentRun[str](speculator, Scripted(), CONTEXT, TOOLS)
        await until(lambda: len(predictor.received) == 4)

    speculate(test)
    assert predictor.received == ["begun", ("user", "Hello")] * 2
