"""Turns: a result is committed at most once and only if right, and every outcome is logged."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
from collections.abc import Callable, Generator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.speculation.calls import GuessedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator, Speculator
from headstart.speculation.turn import Turn
from headstart.speculation.turn_state import TurnSettled
from headstart.thresholds.reader import Thresholds
from tests.client.speculation.turns import (
    ARGUMENTS,
    CONTEXT,
    FOREVER,
    Log,
    Resolution,
    found,
    know,
    real,
    resolve,
    speculate,
    turn,
)


def test_a_hit_is_committed_and_logged() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, found) as trying:
            assert trying.started
            assert trying.decisions[0].action == "speculate"
            guess = await resolve(trying, "search", '{"limit": 3, "query": "lights"}')
            assert guess == Resolution(True, "found")
            with pytest.raises(TurnSettled):
                await resolve(trying, "search", ARGUMENTS)
        (start,), (end,) = log.of("speculation_start"), log.of("task_complete")
        assert start["confidence"] == 0.9
        assert start["data"]["context"] == {"domain": "retail"}
        prediction = start["data"]["prediction"]
        assert (prediction["tool_id"], prediction["speculated"]) == ("search", True)
        assert "confidence" not in end, "the service joins it to its start"
        assert end["task_id"] == start["task_id"]
        assert end["data"]["prediction"]["was_correct"] is True
        assert end["data"]["result"]["gain_ms"] >= 0.0
        assert (end["tool_id"], end["success"]) == ("search", True)

    stats = speculate(test)
    assert (stats["started"], stats["discarded"], stats["wasted"]) == (1, 0, 0.0)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {"query": "doors", "limit": 3}),
        ("buy", ARGUMENTS),
        (None, None),
        ("search", None),
    ],
)
def test_a_miss_is_cancelled_discarded_and_logged(tool: str | None, arguments: object) -> None:
    cancelled = asyncio.Event()

    async def slow() -> str:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            cancelled.set()
        return "never"

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, slow, cost=250.0, gain=90.0) as trying:
            await asyncio.sleep(0)
            assert await resolve(trying, tool, arguments) == Resolution(False)
        assert cancelled.is_set()
        (end,) = log.of("task_complete")
        assert end["data"]["prediction"]["was_correct"] is False
        assert end["data"]["result"] == {"gain_ms": 90.0, "cost_ms": 250.0}

    stats = speculate(test)
    assert (stats["discarded"], stats["wasted"]) == (1, 250.0)


def test_declined_guesses_are_logged_too() -> None:
    async def never() -> str:
        raise AssertionError("this must not run")

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        for confidence, action, named in ((0.6, "suggest", "suggestion"), (0.1, "ask", "explicit")):
            async with turn(speculator, never, confidence, gain=1.0, cost=2.0) as trying:
                assert (trying.decisions[0].action, trying.started) == (action, 0)
                assert not (await resolve(trying, "search", ARGUMENTS)).hit
            start, end = log.events[-2:]
            assert start["data"]["prediction"]["mode"] == named
            assert end["data"]["prediction"]["was_correct"] is True
            assert end["data"]["prediction"]["speculated"] is False
            assert end["data"]["result"] == {"gain_ms": 1.0, "cost_ms": 2.0}

    assert speculate(test)["started"] == 0


@pytest.mark.parametrize(("mode", "logged"), [(b"observe", 2), (b"off", 0)])
def test_modes(mode: bytes, logged: int) -> None:
    async def never() -> str:
        raise AssertionError("this must not run")

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, never) as trying:
            assert trying.decisions[0].action == "ask"
            assert not (await resolve(trying, "search", ARGUMENTS)).hit
        assert len(log.events) == logged

    speculate(test, mode=mode)


class Answer(SimpleNamespace):
    """A framework's result object."""


async def fails() -> str:
    raise OSError("no route")


async def times_out() -> None:
    async with asyncio.timeout(0.001):
        await asyncio.sleep(FOREVER)


async def is_cancelled() -> None:
    raise asyncio.CancelledError


def raises_at_once() -> Any:
    raise OSError("no route")


def returning(value: object) -> Callable[[], Any]:
    async def call() -> object:
        return value

    return call


async def exits() -> None:
    raise GeneratorExit


async def stops() -> None:
    raise BaseException("neither an Exception nor about the process")


FAILURES: list[tuple[Callable[[], Any], type[BaseException]]] = [
    (fails, OSError),
    (times_out, TimeoutError),
    (is_cancelled, GuessFailed),
    (exits, GeneratorExit),
    (stops, BaseException),
    (raises_at_once, OSError),
    (returning(Answer(isError=True, content=["503"])), GuessFailed),
    (returning(Answer(is_error=True)), GuessFailed),
    (returning({"isError": True}), GuessFailed),
    (returning({"content": [], "is_error": True}), GuessFailed),
    (returning(Answer(tool_call_id="1", status="error")), GuessFailed),
    (returning(Answer(tool_call_id="1", outcome="failed")), GuessFailed),
    (returning(OSError("returned, not raised")), GuessFailed),
]


@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_a_failed_guessed_call_is_not_a_hit(
    call: Callable[[], Any], error: type[BaseException]
) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, call, gain=400.0, cost=5.0) as trying:
            guess = await resolve(trying, "search", ARGUMENTS)
            assert not guess.hit
            assert guess.value is None
            assert isinstance(guess.error, error)
        (end,) = log.of("task_complete")
        prediction = end["data"]["prediction"]
        assert (prediction["was_correct"], prediction["failed"]) == (False, True)
        assert prediction["speculated"] is True
        assert (end["tool_id"], end["success"]) == ("search", False)
        assert end["data"]["result"]["cost_ms"] == 5.0

    stats = speculate(test)
    assert (stats["wasted"], stats["discarded"], stats["failed"]) == (5.0, 1, 1)


@pytest.mark.parametrize(
    "result",
    [
        None, False, 0, "", [], {}, "error", {"isError": False}, {"is_error": None},
        {"status": "error"}, Answer(isError=False), Answer(is_error=lambda: True),
        Answer(tool_call_id="1", status="success"), Answer(tool_call_id="1", outcome="success"),
    ],
)  # fmt: skip
def test_a_result_that_is_not_marked_as_an_error_is_a_hit(result: object) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, returning(result)) as trying:
            assert await resolve(trying, "search", ARGUMENTS) == Resolution(True, result)

    assert speculate(test)["failed"] == 0


def test_the_duration_of_a_failed_guess_is_its_default_cost() -> None:
    now = 0.0

    async def slow() -> None:
        nonlocal now
        now += 0.25
        raise OSError("no route")

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, slow) as trying:
            await resolve(trying, "search", ARGUMENTS)
        (end,) = log.of("task_complete")
        assert end["data"]["result"] == {"cost_ms": 250.0}

    assert speculate(test, clock=lambda: now)["wasted"] == 250.0


def test_a_right_guess_whose_result_is_not_awaited_is_not_a_hit() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async def hangs() -> None:
            await asyncio.sleep(FOREVER)

        async def use() -> None:
            async with turn(speculator, hangs, gain=400.0, cost=7.0) as trying:
                async with asyncio.timeout(0.001):
                    await resolve(trying, "search", ARGUMENTS)

        with pytest.raises(TimeoutError):
            await use()
        (end,) = log.of("task_complete")
        assert end["data"]["prediction"]["was_correct"] is False
        assert end["data"]["prediction"]["failed"] is True

    assert speculate(test)["wasted"] == 7.0


def test_closing_a_wait_for_a_guess_does_not_fail_the_guess() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, lambda: asyncio.sleep(FOREVER)) as trying:
            waiting = trying.settle(real())["1"].result()
            waiting.send(None)
            waiting.close()  # a `GeneratorExit` that was swallowed would be a RuntimeError
        (end,) = log.of("task_complete")
        assert end["data"]["prediction"]["failed"] is True

    speculate(test)


def test_failed_guesses_use_up_the_cost_budget() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        started = []
        for _ in range(4):
            async with turn(speculator, fails, cost=60.0) as trying:
                started.append(trying.started)
                await resolve(trying, "search", ARGUMENTS)
        assert started == [1, 1, 0, 0]
        declined = log.of("task_complete")[-1]["data"]["prediction"]
        assert declined["was_correct"] is True, "the guess was right, and nothing was started"
        assert "failed" not in declined

    speculate(test, wasted_per_minute=120.0)


@pytest.mark.parametrize(
    "result", [5, None, "text", {"a": 1}, concurrent.futures.Future(), iter([])]
)
def test_a_plain_function_is_refused_before_anything_is_logged(result: object) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        with pytest.raises(TypeError, match=r"search.*awaitable.*to_thread"):
            async with turn(speculator, lambda: result, cost=2.0):
                raise AssertionError("the block must not run")
        assert log.events == []

    assert speculate(test)["discarded"] == 1


@pytest.mark.filterwarnings("error")
def test_a_turn_that_is_cancelled_on_entering_leaves_nothing_behind() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async def use() -> None:
            async with turn(speculator, lambda: asyncio.sleep(FOREVER), cost=3.0):
                raise AssertionError("the block must not run")

        using = asyncio.ensure_future(use())
        await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait([using])
        assert using.cancelled()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert log.events == []

    assert speculate(test)["wasted"] == 3.0


def test_a_call_that_is_not_a_function_is_refused_at_once() -> None:
    async def agen() -> Any:
        yield 1

    def gen() -> Any:
        yield 1

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        for run, named in ((found(), "not run"), (None, "run"), (agen, "gener"), (gen, "gener")):
            with pytest.raises(TypeError, match=named):
                speculator.turn(CONTEXT, [], run)  # type: ignore[arg-type]
        assert log.events == []

    assert speculate(test)["ask"] == 0


class Later:
    """An awaitable that is not a coroutine."""

    def __await__(self) -> Generator[Any, None, str]:
        return asyncio.sleep(0, "found").__await__()


@pytest.mark.parametrize(
    "call",
    [
        lambda: asyncio.wait_for(found(), 1.0),
        functools.partial(asyncio.sleep, 0, "found"),
        lambda: asyncio.to_thread(lambda: "found"),
        lambda: asyncio.get_running_loop().run_in_executor(None, lambda: "found"),
        lambda: asyncio.create_task(found()),
        lambda: asyncio.gather(found()),
        Later,
    ],
)
def test_whatever_can_be_awaited_is_a_call(call: Callable[[], Any]) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, call) as trying:
            guess = await resolve(trying, "search", ARGUMENTS)
            assert guess.hit
            assert guess.value in ("found", ["found"])
        async with turn(speculator, call) as trying:
            await resolve(trying, "buy")

    assert speculate(test)["discarded"] == 1


@pytest.mark.filterwarnings("error")
def test_a_call_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    tasks: list[asyncio.Task[Any]] = []

    def in_a_task() -> Any:
        tasks.append(asyncio.create_task(asyncio.sleep(FOREVER)))
        return tasks[-1]

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        for call in (found, in_a_task):
            async with turn(speculator, call) as trying:
                await resolve(trying, "buy")
        await asyncio.sleep(0)
        gc.collect()
        assert tasks[0].cancelled()

    speculate(test)


def test_a_turn_is_started_and_settled_once() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        trying = turn(speculator, found)
        with pytest.raises(RuntimeError, match="async with"):
            trying.settle(real())
        assert log.events == []
        async with trying:
            with pytest.raises(TurnSettled, match="started before"):
                await trying.start()
            match = trying.settle(real())["1"]
            with pytest.raises(TurnSettled):
                trying.settle(real())
            assert await match.result() == "found"
            with pytest.raises(GuessFailed):
                await match.result()
        with pytest.raises(TurnSettled, match="started before"):
            await trying.start()
        with pytest.raises(TurnSettled):
            trying.settle(real())
        assert [each["event_type"] for each in log.events] == ["speculation_start", "task_complete"]

    assert speculate(test)["started"] == 1


def test_leaving_without_a_call_is_a_miss_and_an_error_has_no_outcome() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, found):
            pass
        (end,) = log.of("task_complete")
        assert end["data"]["prediction"]["was_correct"] is False
        with pytest.raises(KeyError):
            async with turn(speculator, found):
                raise KeyError
        assert len(log.of("task_complete")) == 1
        assert len(log.of("speculation_start")) == 2

    assert speculate(test)["discarded"] == 2


def test_the_cost_budget_declines_guesses_that_could_waste_too_much() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, found, cost=60.0) as one:
            async with turn(speculator, found, cost=60.0) as other:
                assert (one.started, other.started) == (1, 0)
                assert "wasted" in other.decisions[0].reason
            await resolve(one, "buy")
        async with turn(speculator, found, cost=60.0) as later:
            assert not later.started

    speculate(test, wasted_per_minute=100.0)


def test_a_logging_failure_fails_no_workflow(caplog: pytest.LogCaptureFixture) -> None:
    class Full(Log):
        def emit(self, event: Mapping[str, Any], /) -> str:
            raise RuntimeError("the buffer is full")

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        speculator._emitter = Full()
        async with turn(speculator, found) as trying:
            assert (await resolve(trying, "search", ARGUMENTS)).value == "found"

    assert speculate(test)["unlogged"] == 2
    assert "the buffer is full" in caplog.text


def test_a_prediction_belongs_to_a_workflow() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        guess = GuessedCall("search", {}, 0.5)
        with pytest.raises(ValueError, match="workflow_id"):
            speculator.turn({"workflow_type": "refund"}, [guess], lambda *call: found())

    speculate(test)


def test_exploration_is_a_share_and_can_be_repeated() -> None:
    chosen = []
    for _ in range(2):
        with Thresholds("redis://127.0.0.1:1", staleness_s=FOREVER) as reader:
            know(reader)
            speculator = Speculator(reader, allowed={"search"}, exploration=0.3, seed=7)
            chosen.append([speculator.decide(CONTEXT, "search", 0.6).action for _ in range(200)])
            assert speculator.decide(CONTEXT, "unsafe", 0.6).action == "suggest"
            speculator.missed(5.0)
            assert speculator.stats()["wasted"] == 5.0
    assert chosen[0] == chosen[1]
    assert 30 <= chosen[0].count("speculate") <= 90
    with pytest.raises(ValueError, match="exploration"):
        Speculator(reader, exploration=1.5)


@given(
    takes=st.integers(0, 6),
    resolves=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=3),
    cancelled_at=st.none() | st.integers(0, 8),
    fails=st.booleans(),
    stubborn=st.booleans(),
)
def test_whatever_races_a_result_is_committed_at_most_once(
    takes: int,
    resolves: list[tuple[int, bool]],
    cancelled_at: int | None,
    fails: bool,
    stubborn: bool,
) -> None:
    """Every schedule of the guessed call, up to three tellings of the real one, a cancellation."""
    resolutions: list[tuple[bool, Resolution[Any]]] = []

    async def ticks(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    async def call() -> str:
        try:
            await ticks(takes)
        except asyncio.CancelledError:
            if not stubborn:
                raise
        if fails:
            raise OSError("failed")
        return "found"

    async def resolve_after(trying: Turn[Any], after: int, right: bool) -> None:
        await ticks(after)
        try:
            resolution = await resolve(trying, "search" if right else "buy", ARGUMENTS)
        except TurnSettled:
            return
        resolutions.append((right, resolution))

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async def use() -> None:
            async with turn(speculator, call) as trying:
                await asyncio.gather(*(resolve_after(trying, *each) for each in resolves))

        using = asyncio.ensure_future(use())
        if cancelled_at is not None:
            await ticks(cancelled_at)
            using.cancel()
        await asyncio.wait([using])
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left)
        committed = [resolution for _, resolution in resolutions if resolution.hit]
        assert len(resolutions) <= 1
        assert all(right and not fails for right, resolution in resolutions if resolution.hit)
        starts, ends = log.of("speculation_start"), log.of("task_complete")
        assert len(starts) <= 1
        assert len(ends) <= len(starts)
        if resolutions:
            (end,) = ends
            right, resolution = resolutions[0]
            prediction = end["data"]["prediction"]
            assert prediction["was_correct"] is (right and resolution.error is None)
            assert prediction.get("failed", False) is (resolution.error is not None)
        stats = speculator.stats()
        if not using.cancelled() or resolutions:
            assert stats["started"] == stats["discarded"] + len(committed)

    speculate(test)
