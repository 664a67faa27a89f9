"""Turns of agents that run in threads: the same rules, but a running call cannot be cancelled."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headstart.speculation import task_ids
from headstart.speculation.calls import GuessedCall, RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import Speculator
from headstart.speculation.thread_turn import ThreadTurn
from headstart.speculation.turn_state import TurnSettled
from tests.client.speculation.threads import WAIT_S, speculating, until
from tests.client.speculation.turns import CONTEXT, real


def turn(speculator: Speculator, call: Callable[[], Any], **stakes: float) -> ThreadTurn[Any]:
    guess = GuessedCall("search", real()[0].arguments, 0.9, **stakes)
    return speculator.turn(CONTEXT, [guess], lambda tool, arguments: call())


def test_a_hit_is_used_once_and_logged() -> None:
    with speculating() as (speculator, log):
        with turn(speculator, lambda: "found") as trying:
            match = trying.settle(real())["1"]
            until(trying._state.runs[0].execution.future.done)  # type: ignore[union-attr]
            assert match.result() == "found"
            with pytest.raises(GuessFailed):
                match.result()
            with pytest.raises(TurnSettled):
                trying.settle(real())
        (end,) = log.of("task_complete")
        assert end["data"]["prediction"]["was_correct"] is True
        assert (end["tool_id"], end["success"]) == ("search", True)
    assert speculator.stats()["discarded"] == 0


def fails() -> None:
    raise OSError("no route")


@pytest.mark.parametrize(
    "call",
    [fails, lambda: {"isError": True}, lambda: OSError("returned")],
    ids=["raises", "error result", "exception result"],
)
def test_a_failed_call_is_no_hit(call: Callable[[], Any]) -> None:
    with speculating() as (speculator, log):
        with turn(speculator, call, cost=5.0) as trying, pytest.raises(GuessFailed):
            trying.settle(real())["1"].result()
        (end,) = log.of("task_complete")
        assert end["data"]["prediction"]["failed"] is True
    assert speculator.stats()["failed"] == 1


def test_a_wrong_call_that_runs_is_discarded_and_its_whole_time_is_wasted() -> None:
    release, running = threading.Event(), threading.Event()
    now = 0.0

    def slow() -> str:
        running.set()
        release.wait(WAIT_S)
        return "found"

    with speculating(clock=lambda: now) as (speculator, log):
        trying = turn(speculator, slow)
        trying.start()
        assert running.wait(WAIT_S)
        now = 0.25
        assert trying.settle(real("buy")) == {}
        (end,) = log.of("task_complete")
        assert end["data"]["result"]["cost_ms"] == 250.0
        assert speculator.stats()["wasted"] == 250.0
        now = 1.0
        release.set()
        until(lambda: speculator.stats()["wasted"] == 1000.0)
        trying.close()


def test_a_call_that_waits_for_a_thread_is_cancelled() -> None:
    release, made = threading.Event(), []

    def slow() -> None:
        made.append(1)
        release.wait(WAIT_S)

    with speculating(threads=1) as (speculator, log):
        first, wrong, right = (turn(speculator, slow) for _ in range(3))
        for each in (first, wrong, right):
            each.start()
        until(lambda: made)
        wrong.settle(real("buy"))
        with pytest.raises(GuessFailed, match="has not begun"):
            right.settle(real())["1"].result()
        costs = [event["data"]["result"]["cost_ms"] for event in log.of("task_complete")]
        assert costs == [0.0, 0.0]
        first.settle([])
        release.set()
        for each in (first, wrong, right):
            each.close()
    assert made == [1]


def test_a_result_is_waited_for_within_a_time() -> None:
    release = threading.Event()
    with speculating() as (speculator, _log):
        with turn(speculator, lambda: release.wait(WAIT_S)) as trying:
            until(lambda: trying._state.runs[0].execution.ran_s() > 0.0)  # type: ignore[union-attr]
            with pytest.raises(GuessFailed, match="in time"):
                trying.settle(real())["1"].result(timeout_s=0.001)
        release.set()


def test_turns_that_are_left_open_are_closed_when_another_is_opened() -> None:
    now = 0.0
    with speculating(clock=lambda: now, open_s=10.0) as (speculator, log):
        turn(speculator, lambda: "found").start()
        now = 11.0
        with turn(speculator, lambda: "found"):
            assert (speculator.stats()["open"], speculator.stats()["reaped"]) == (1, 1)
        assert len(log.of("task_complete")) == 1


def test_a_closed_speculator_starts_nothing() -> None:
    with speculating() as (speculator, log):
        speculator.close()
        with turn(speculator, lambda: "found") as trying:
            assert trying.started == 0
            assert trying.settle(real()) == {}
        speculator.close()
        assert log.events == []


def agent(speculator: Speculator, seed: int) -> list[object]:
    """A run of an agent in a thread whose tools, model and hooks fail at random."""
    draw, used = random.Random(seed), []

    def make(tool: str, arguments: Mapping[str, object]) -> object:
        time.sleep(draw.random() * 0.002)
        if draw.random() < 0.2:
            raise OSError("the tool fails")
        return object()

    context = {**CONTEXT, "workflow_id": f"w{seed}"}
    guesses = [GuessedCall("search", {"n": n}, 0.9) for n in range(draw.randrange(3))]
    trying = speculator.turn(context, guesses, make, limit=2)
    trying.start()
    time.sleep(draw.random() * 0.002)
    if draw.random() < 0.1:
        return used  # the model failed, and there is no hook for that
    calls = [RequestedCall(str(n), "search", {"n": n}) for n in range(draw.randrange(3))]
    matches = trying.settle(calls)
    for call in calls:
        try:
            if call.id in matches and draw.random() < 0.9:
                used.append(matches[call.id].result(0.001))
        except GuessFailed:
            pass
        trying.finished(call.id)
    if draw.random() < 0.9:
        trying.close()
    return used


@pytest.mark.parametrize("open_s", [600.0, 1e-9], ids=["kept", "closed at any time"])
def test_nothing_stays_open_and_no_result_is_used_twice(open_s: float) -> None:
    before = dict(task_ids._open)
    with (
        speculating(wasted_per_minute=float("inf"), open_s=open_s) as (speculator, log),
        ThreadPoolExecutor(8) as agents,
    ):
        runs = agents.map(lambda seed: agent(speculator, seed), range(400))
        used = [result for run in runs for result in run]
    until(lambda: task_ids._open == before)
    stats = speculator.stats()
    assert stats["started"] == stats["discarded"] + len(used)
    assert len(set(map(id, used))) == len(used)
    starts = {(each["workflow_id"], each["task_id"]) for each in log.of("speculation_start")}
    ends = [(each["workflow_id"], each["task_id"]) for each in log.of("task_complete")]
    assert len(set(ends)) == len(ends)
    assert set(ends) <= starts
    assert len(starts) <= stats["started"]
