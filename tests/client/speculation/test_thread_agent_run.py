"""One run of an agent in threads, as a synchronous framework's hooks report it."""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headstart.prediction.interface import ToolCall
from headstart.speculation import task_ids
from headstart.speculation.calls import RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.thread_agent_run import ThreadAgentRun
from tests.client.speculation.scripted import CONTEXT, TOOLS, Scripted
from tests.client.speculation.threads import WAIT_S, speculating, until

USER = contextvars.ContextVar("USER", default="")


def make(tool: str, arguments: Mapping[str, object]) -> str:
    return f"{tool} {arguments} for {USER.get()}"


def test_a_run_answers_learns_and_logs() -> None:
    predictor = Scripted(("search", {"q": "a"}), ("pay", {"sum": 1}))
    USER.set("u7")
    with speculating(allowed=()) as (speculator, log):
        run = ThreadAgentRun[str](speculator, predictor, CONTEXT, TOOLS, guess_s=WAIT_S)
        run.user("Where is order 7?")
        run.model_started(make)
        assert run.guessed() == 1
        calls = [RequestedCall("c1", "search", {"q": "a"}), RequestedCall("c2", "pay", {"sum": 2})]
        matches = run.model_answered(calls)
        assert list(matches) == ["c1"]
        until(lambda: speculator.stats()["started"])
        answer = matches["c1"].result()
        assert answer == "search {'q': 'a'} for u7"
        run.tool_finished("c2", "paid", duration_ms=25.0)
        run.tool_finished("c1", answer)
        run.finished()
        until(lambda: len(predictor.received) == 4)
        steps = [
            (event["tool_id"], event["data"].get("prediction", {}).get("was_correct"))
            for event in log.of("task_complete")
        ]
        assert sorted(steps, key=str) == [("pay", False), ("pay", None), ("search", True)]
        assert len(log.of("workflow_complete")) == 1
    assert predictor.received[1] == [ToolCall("search", {"q": "a"}), ToolCall("pay", {"sum": 2})]


def test_a_late_guess_is_not_used() -> None:
    hold = threading.Event()
    with speculating() as (speculator, log):
        predictor = Scripted(("search", {}))
        guess = predictor.guess
        predictor.guess = lambda limit=3: (hold.wait(WAIT_S), guess(limit))[1]  # type: ignore[method-assign]
        run = ThreadAgentRun[str](speculator, predictor, CONTEXT, guess_s=0.001)
        run.model_started(make)
        assert run.guessed() == 0
        assert speculator.stats()["unpredicted"] == 1
        assert run.model_answered([RequestedCall("1", "search", {})]) == {}
        slow = ThreadAgentRun[str](speculator, predictor, CONTEXT, guess_s=WAIT_S)
        slow.model_started(make)
        starting = slow._starting
        assert slow.model_answered([]) == {}, "the model was quicker than the guess"
        hold.set()
        assert starting is not None
        starting.result(WAIT_S)
        assert log.of("speculation_start") == []


def test_a_predictor_that_fails_is_dropped() -> None:
    def fails(limit: int = 3) -> Any:
        raise LookupError("no such table")

    with speculating() as (speculator, _log):
        predictor = Scripted()
        predictor.guess = fails  # type: ignore[method-assign]
        run = ThreadAgentRun[str](speculator, predictor, CONTEXT, guess_s=WAIT_S)
        for _ in range(3):
            run.model_started(make)
            assert run.guessed() == 0
            assert run.model_answered([]) == {}
        run.finished()
        assert speculator.stats()["unpredicted"] == 1


def act(run: ThreadAgentRun[object], draw: random.Random) -> list[object]:
    """Run an agent whose tools, model and hooks fail at random."""
    used: list[object] = []

    def fails_at_times(tool: str, arguments: Mapping[str, object]) -> object:
        if draw.random() < 0.2:
            raise OSError("the tool fails")
        return object()

    for _ in range(draw.randrange(1, 4)):
        run.model_started(fails_at_times)
        if draw.random() < 0.7:
            run.guessed()
        if draw.random() < 0.1:
            continue  # the model failed, and there is no hook for that
        calls = [RequestedCall(str(n), "search", {"n": n}) for n in range(draw.randrange(3))]
        matches = run.model_answered(calls)
        for call in calls:
            try:
                if call.id in matches and draw.random() < 0.9:
                    used.append(matches[call.id].result(WAIT_S))
            except GuessFailed:
                pass
            run.tool_finished(call.id)
    if draw.random() < 0.9:
        run.finished()
    return used


def test_nothing_stays_open_and_no_result_is_used_twice() -> None:
    before = dict(task_ids._open)
    with (
        speculating(wasted_per_minute=float("inf"), threads=16) as (speculator, log),
        ThreadPoolExecutor(8) as agents,
    ):

        def one(seed: int) -> list[object]:
            draw = random.Random(seed)
            predictor = Scripted(*[("search", {"n": n}) for n in range(draw.randrange(3))])
            context = {**CONTEXT, "workflow_id": f"w{seed}"}
            run = ThreadAgentRun[object](speculator, predictor, context, guess_s=WAIT_S)
            return act(run, draw)

        used = [result for run in agents.map(one, range(300)) for result in run]
    assert task_ids._open == before
    stats = speculator.stats()
    assert stats["started"] == stats["discarded"] + len(used)
    assert len(set(map(id, used))) == len(used) > 20
    ends = [
        (event["workflow_id"], event["task_id"])
        for event in log.of("task_complete")
        if event["data"].get("prediction")
    ]
    assert len(set(ends)) == len(ends)


def test_a_failed_guess_is_made_again() -> None:
    def fails(tool: str, arguments: Mapping[str, object]) -> str:
        raise OSError("no route")

    with speculating() as (speculator, log):
        run = ThreadAgentRun[str](speculator, Scripted(("search", {})), CONTEXT, guess_s=WAIT_S)
        run.model_started(fails)
        run.guessed()
        matches = run.model_answered([RequestedCall("1", "search", {})])
        with pytest.raises(GuessFailed):
            matches["1"].result()
        run.tool_finished("1", "found")
        run.finished("failure")
        outcome, step = log.of("task_complete")
        assert outcome["data"]["prediction"]["failed"] is True
        assert (step["task_id"], step["success"]) == ("1", True)
