"""Runs with faults, of any framework, and what their events must be."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any

from scripted import SpooledEvents

RUNS = 1_000
AT_ONCE = 20
WITHIN_S = 60.0
"""Of a run in which nothing hangs."""
STARTED_AT_LEAST = RUNS // 10
"""Guessed calls. The model answers after 0 to 4 ms: on a slow machine, before many have begun."""
_timeout: ContextVar[asyncio.Timeout] = ContextVar("_timeout")
"""Of the run that makes the current call."""


class Faults:
    """Draws, for each call, whether it works, raises, or hangs until it is cancelled.

    `retry`: what a tool raises to have the model ask again, if the framework has that.
    """

    def __init__(self, seed: int, retry: Exception | None = None) -> None:
        self._random = random.Random(seed)
        self._retry = retry

    async def __call__(self, name: str) -> str:
        drawn = self._random.random()
        await asyncio.sleep(drawn * 0.004)
        if drawn < 0.12:
            raise ValueError(f"{name} has failed")
        if drawn < 0.2 and self._retry is not None and name != "model":
            raise self._retry
        if drawn > 0.92:
            await self._hang(drawn)
        return f"{name} {self._random.random()}"

    async def _hang(self, drawn: float) -> None:
        """Have the run cancelled soon, rather than after a time that a busy machine may need."""
        with suppress(RuntimeError):  # it has ended
            _timeout.get().reschedule(asyncio.get_running_loop().time() + (drawn - 0.92) / 4)
        await asyncio.sleep(WITHIN_S)


async def outcomes_of(
    run: Callable[[int], Awaitable[None]], *expected: type[Exception]
) -> Counter[str]:
    """Make the runs, some at once; return how many ended how: "done", or by which exception.

    `expected`: exceptions that a fault may end a run with.
    """
    outcomes = Counter[str]()

    async def one(number: int) -> None:
        try:
            async with asyncio.timeout(WITHIN_S) as timeout:
                _timeout.set(timeout)
                await run(number)
            outcomes["done"] += 1
        except (ValueError, TimeoutError, *expected) as error:
            outcomes[type(error).__name__] += 1

    for begin in range(0, RUNS, AT_ONCE):
        await asyncio.gather(*(one(begin + number) for number in range(AT_ONCE)))
    assert sum(outcomes.values()) == RUNS
    return outcomes


def check_events(events: SpooledEvents) -> list[str]:
    """Check that no guess has two outcomes, and no run two ends; return the runs that ended."""
    logged = events.read()
    begun = [each for each in logged if each["event_type"] == "speculation_start"]
    ended = [each["task_id"] for each in logged if "was_correct" in _prediction(each)]
    assert len(ended) == len(set(ended)) <= len(begun), "no guess has two outcomes"
    ends = [each["workflow_id"] for each in logged if each["event_type"] == "workflow_complete"]
    assert len(ends) == len(set(ends)), "no run ends twice"
    assert set(ends) == {each["workflow_id"] for each in logged}, "each run that began has ended"
    return ends


async def until(condition: Callable[[], object], within_s: float = 30.0) -> None:
    """Wait for a condition of the event loop. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - of any framework
            await asyncio.sleep(0.01)


@asynccontextmanager
async def timeout_after(begun: Callable[[], object], after_s: float) -> AsyncIterator[None]:
    """Cancel the block as `asyncio.timeout` does, some time after a condition: a run has begun."""
    async with asyncio.timeout(None) as timeout:

        async def start() -> None:
            await until(begun)
            timeout.reschedule(asyncio.get_running_loop().time() + after_s)

        starting = asyncio.ensure_future(start())
        try:
            yield
        finally:
            starting.cancel()


def _prediction(event: dict[str, Any]) -> dict[str, Any]:
    prediction: dict[str, Any] = event.get("data", {}).get("prediction", {})
    return prediction
