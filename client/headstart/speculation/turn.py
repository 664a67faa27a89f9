"""One turn of an agent: guessed calls run while the model works out the real ones.

For asyncio; `headstart.speculation.thread_turn` is the form for threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from headstart.speculation.base_turn import BaseTurn, TurnKeeper
from headstart.speculation.calls import CallWithId, stakes
from headstart.speculation.decision import Guess, SpeculationDecision
from headstart.speculation.guess_run import GuessRun
from headstart.speculation.guessed_call import NotAwaitable
from headstart.speculation.started_call import StartedCall, TaskExecution

DISCARD_S: Final = 5.0
"""Seconds that leaving a turn's block waits for cancelled calls."""

T = TypeVar("T")
RunTool = Callable[[str, Any], Awaitable[T]]
"""Makes a guessed call, of a tool with arguments as they were guessed."""

_LOG = logging.getLogger(__name__)


class TurnSpeculator(TurnKeeper, Protocol):
    """The speculator, as far as a turn uses it."""

    async def choose(self, context: Mapping[str, object], guess: Guess) -> SpeculationDecision:
        """Decide about a guess."""
        ...


class Turn(BaseTurn[TurnSpeculator, RunTool[T]], Generic[T]):
    """A turn with guesses, made by `AsyncSpeculator.turn`.

    `start` decides, and starts the guessed calls that are worth it. `settle` takes the calls that
    the model requested, and returns the started ones among them. `close` cancels what was not used.
    As an async context manager it is started and closed; leaving it without `settle` means that
    the model requested no calls, leaving it by an exception that they are unknown.
    """

    async def start(self) -> None:
        """Decide, start the guessed calls that are worth it, and log the predictions.

        Raises:
            NotAwaitable: `run` returned a value that is no awaitable; nothing is logged.
            TurnSettled: The turn was started before.
        """
        self._state.start()
        try:
            for run in self._state.runs:
                run.choice = await self._speculator.choose(self._context, stakes(run.guess))
            self._speculator.opened(self)
            await self._start_calls()
        except BaseException:
            self.close()
            raise
        for run in self._state.runs:
            run.predicted()
        self._state.ready()

    async def _start_calls(self) -> None:
        """Start the calls, and let them run to their first await."""
        tasks: list[asyncio.Task[T]] = []
        for run in self._state.runs:
            call = partial(self._run, run.guess.tool, run.guess.arguments)
            make = partial(TaskExecution, call, run.guess.tool, self._clock)
            if run.start(make) and isinstance(run.execution, TaskExecution):
                tasks.append(run.execution.task)
        if tasks:
            await asyncio.sleep(0)
        for task in tasks:
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, NotAwaitable):
                raise error

    def settle(self, calls: Sequence[CallWithId]) -> dict[str, StartedCall[T]]:
        """Decide which guesses were right, at once; wrong ones are cancelled.

        Args:
            calls: All calls that the model requested; empty if it requested none. Each has an
                `id`, a `tool` and `arguments`: a mapping, or JSON as model APIs give it.

        Returns:
            By the id of a requested call, the guessed call whose result answers it. A closed turn
            has none.

        Raises:
            TurnSettled: The turn was settled before.
        """
        found = self._state.settle(calls)
        return {call: StartedCall(call, run, self._state) for call, run in found.items()}

    def request(self, call: CallWithId) -> StartedCall[T] | None:
        """Return the guessed call whose result answers a call, before all calls are known.

        The first one begins the model's answer. `settle` is called later with all calls, this one
        among them. Wrong guesses run until then. A call that was requested before has been changed
        since: a guess that was right about its earlier form is undecided again.
        """
        run = self._state.request(call)
        return None if run is None else StartedCall(call.id, run, self._state)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and not self._state.settled:
            self.settle(())
        self.close()
        await self.wait_cancelled()

    async def wait_cancelled(self) -> None:
        """Wait for calls that were cancelled, at most 5 s; warn of those that go on."""
        running = [run for run in self._state.runs if _is_running(run)]
        if running:
            tasks = [run.execution.task for run in running]  # type: ignore[union-attr]
            await asyncio.wait(tasks, timeout=DISCARD_S)
        for run in running:
            if _is_running(run):
                _LOG.warning("the guessed call of %s ignores its cancellation", run.guess.tool)


def _is_running(run: GuessRun) -> bool:
    execution = run.execution
    if not isinstance(execution, TaskExecution) or execution.task.done():
        return False
    return execution.task.get_loop() is asyncio.get_running_loop()
