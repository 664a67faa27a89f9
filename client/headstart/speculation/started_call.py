"""A guessed call that runs as an asyncio task, and its result for the requested call it matches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from headstart.speculation.guess_run import GuessRun
from headstart.speculation.guessed_call import GuessFailed, make_call, marked_as_error, value_of
from headstart.speculation.turn_state import TurnState

T = TypeVar("T")


class TaskExecution(Generic[T]):
    """A guessed call that runs as a task."""

    def __init__(
        self, call: Callable[[], Awaitable[T]], tool: str, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._took_s: float | None = None
        self.begun = clock()
        self.task: asyncio.Task[T] = asyncio.ensure_future(self._run(call, tool))
        self.task.add_done_callback(_consume)

    async def _run(self, call: Callable[[], Awaitable[T]], tool: str) -> T:
        try:
            return await make_call(call, tool)
        finally:
            self._took_s = self._clock() - self.begun

    def ran_s(self) -> float:
        """Return the seconds that the call has run, or took."""
        return self._clock() - self.begun if self._took_s is None else self._took_s

    def value(self) -> object:
        """Return what the call returned or raised; None if it has not ended, or was cancelled."""
        return value_of(self.task)

    def cancel(self) -> None:
        """Cancel the task, from any thread."""
        loop = self.task.get_loop()
        if loop is _running_loop():
            self.task.cancel()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self.task.cancel)


class StartedCall(Generic[T]):
    """A guessed call that a requested one matches: its result answers that one, once."""

    def __init__(self, call_id: str, run: GuessRun, state: TurnState) -> None:
        self.call_id, self._run, self._state = call_id, run, state

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self._run.guess.tool

    async def result(self) -> T:
        """Return the result, once. If this is cancelled meanwhile, the result is discarded.

        Raises:
            GuessFailed: There is no usable result: make the call. The guessed call failed, its
                result was returned before, or the turn was closed.
        """
        execution = self._run.execution
        if not isinstance(execution, TaskExecution) or not self._run.take():
            raise GuessFailed(f"the guessed call of {self.tool} has no result to return (again)")
        task: asyncio.Task[T] = execution.task
        used = False
        try:
            if not task.done():
                if task.get_loop() is not asyncio.get_running_loop():
                    raise GuessFailed(f"the guessed call of {self.tool} is of another event loop")
                await asyncio.wait([task])
            value = _value_of(task, self.tool)
            used = self._state.use(self.call_id, self._run)
            if not used:
                raise GuessFailed(f"the turn of the guessed call of {self.tool} was closed")
            return value
        finally:
            if not used:
                self._run.fail()


def _value_of(task: asyncio.Task[T], tool: str) -> T:
    """Return the usable result of a task that is done. Raises `GuessFailed`."""
    if task.cancelled():
        raise GuessFailed(f"the guessed call of {tool} was cancelled")
    error = task.exception()
    if error is not None:
        raise GuessFailed(f"the guessed call of {tool} failed: {error!r:.200}") from error
    value = task.result()
    if marked_as_error(value):
        raise GuessFailed(f"the guessed call of {tool} returned an error")
    return value


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _consume(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
