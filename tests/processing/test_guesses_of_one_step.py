"""Several guesses about one step, by the client's turns: each is joined to its own start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

import headstart
from headstart.events.schema import MAX_IDENTIFIER
from headstart.speculation import task_ids
from headstart.speculation.decision import Guess
from headstart.speculation.prediction_log import PredictionLog
from headstart.speculation.speculator import AsyncSpeculator
from headstart.thresholds.threshold import Threshold
from tests.client.speculation.turns import CONTEXT, Log, resolve, speculate
from tests.processing.building import NOW, Table, context, counts, run

STEP = {**CONTEXT, "task_id": "t1"}
TOOLS = {"search", "lookup", "pay"}


@pytest.fixture(autouse=True)
def every_id_is_given_back() -> Any:
    before = dict(task_ids._open)
    yield
    assert task_ids._open == before


async def found() -> str:
    return "found"


async def guess(
    speculator: AsyncSpeculator, stack: AsyncExitStack, tool: str, step: dict[str, Any] = STEP
) -> headstart.Turn[str]:
    guessed = headstart.GuessedCall(tool, {}, 0.95, gain=400.0, cost=10.0)
    trying = speculator.turn(step, [guessed], lambda *call: found())
    return await stack.enter_async_context(trying)


def learned(log: Log) -> Table:
    """Return what the worker's core makes of a log."""
    table, commit = run(*log.events)
    assert commit.dead_letters == []
    return table


def agree(log: Log, *, right: int, wrong: int, unresolved: int = 0) -> None:
    """Check that each outcome is counted once, and each with the guess that it is about."""
    table = learned(log)
    row = counts(table)
    assert (row.outcomes, row.unmatched, row.unresolved) == (right + wrong, 0, unresolved)
    assert context(table, tenant="t").outcomes == right + wrong
    starts, ends = log.of("speculation_start"), log.of("task_complete")
    assert len({start["task_id"] for start in starts}) == len(starts)
    tools = {start["task_id"]: start["data"]["prediction"]["tool_id"] for start in starts}
    for end in ends:
        prediction = end["data"]["prediction"]
        assert prediction["tool_id"] == tools[end["task_id"]]
    assert sum(end["data"]["prediction"]["was_correct"] for end in ends) == right


def tried(test: Callable[[AsyncSpeculator, Log], Coroutine[Any, Any, None]]) -> Log:
    logs: list[Log] = []

    async def kept(speculator: AsyncSpeculator, log: Log) -> None:
        logs.append(log)
        await test(speculator, log)

    speculate(kept, allowed=TOOLS)
    return logs[0]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_each_of_several_guesses_about_one_step_has_its_own_outcome(order: Any) -> None:
    async def test(speculator: AsyncSpeculator, _log: Log) -> None:
        async with AsyncExitStack() as stack:
            tools = ("search", "lookup", "pay")
            open_ = [await guess(speculator, stack, tool) for tool in tools]
            for place in order:
                outcome = await resolve(open_[place], "lookup", {})
                assert outcome.hit is (place == 1)

    log = tried(test)
    assert {start["task_id"] for start in log.of("speculation_start")} == {"t1", "t1/2", "t1/3"}
    agree(log, right=1, wrong=2)


def test_an_id_is_free_again_as_soon_as_its_outcome_is_logged() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        for _ in range(2):  # a retry of the step, as before
            async with AsyncExitStack() as stack:
                await resolve(await guess(speculator, stack, "search"), "search", {})
        with suppress(KeyError):
            async with AsyncExitStack() as stack:
                await guess(speculator, stack, "search")
                raise KeyError
        async with AsyncExitStack() as stack:
            await guess(speculator, stack, "search")
        assert {each["task_id"] for each in log.events} == {"t1"}

    log = tried(test)
    row = counts(learned(log))
    assert (row.outcomes, row.unmatched, row.unresolved) == (3, 0, 1)  # the one that was left


def test_other_runs_and_tenants_may_have_the_same_id() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with AsyncExitStack() as stack:
            others: list[dict[str, str]] = [{}, {"tenant": "b"}, {"workflow_id": "w2"}]
            for other in others:
                await guess(speculator, stack, "search", {**STEP, **other})
        assert {each["task_id"] for each in log.events} == {"t1"}

    tried(test)


def test_an_id_that_would_be_too_long_is_replaced() -> None:
    async def test(speculator: AsyncSpeculator, _log: Log) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await guess(speculator, stack, "search", {**STEP, "task_id": "x" * MAX_IDENTIFIER})
        assert speculator.stats()["unlogged"] == 0

    agree(tried(test), right=0, wrong=2)


def test_guesses_in_threads_do_not_share_an_id() -> None:
    log, together = Log(), threading.Barrier(4)
    asked = headstart.SpeculationDecision("ask", "a test", Threshold(0.92, 0.7, None, "default"))

    def one(tool: str) -> None:
        for _ in range(100):
            prediction = PredictionLog(log, STEP, Guess(tool, 0.95))
            together.wait()
            prediction.predicted(asked, False)
            together.wait()  # all are open
            prediction.resolved("pay", tool == "pay", speculated=False)
            together.wait()

    threads = [threading.Thread(target=one, args=(tool,)) for tool in (*TOOLS, "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row = counts(learned(log))
    assert (row.outcomes, row.unmatched, row.unresolved) == (400, 0, 0)


def test_executors_that_log_themselves_give_each_guess_an_id() -> None:
    """As with the `Speculator` for threads, which only decides."""
    log, ids = Log(), {"tenant": "acme", "workflow_type": "refund", "workflow_id": "w1"}
    guesses = {"t1": "search", "t1/2": "lookup"}
    for task_id, tool in guesses.items():
        log.emit(headstart.speculation_start(
            **ids, task_id=task_id, guess=tool, confidence=0.9, speculated=True, timestamp=NOW,
        ))  # fmt: skip
    for task_id in guesses:
        log.emit(headstart.task_complete(**ids, task_id=task_id, tool_id="search", timestamp=NOW))
    row = counts(learned(log))
    assert (row.outcomes, row.unmatched, row.unresolved) == (2, 0, 0)
