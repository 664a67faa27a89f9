"""One turn of an agent for threads: guessed calls run in a pool while the model thinks.

A running thread cannot be cancelled: the result of a wrong guess is discarded, and the time that it
ran until then counts as wasted. A call that waits for a thread is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from headstart.speculation.base_turn import BaseTurn, TurnKeeper
from headstart.speculation.calls import CallWithId, stakes
from headstart.speculation.decision import Guess, SpeculationDecision
from headstart.speculation.guess_run import GuessRun
from headstart.speculation.guessed_call import GuessFailed, marked_as_error, value_of
from headstart.speculation.turn_state import TurnState

T = TypeVar("T")
RunBlocking = Callable[[str, Any], T]
"""Makes a guessed call, of a tool with arguments as they were guessed, and returns its result."""


class ThreadTurnSpeculator(TurnKeeper, Protocol):
    """The speculator, as far as a turn of threads uses it."""

    def choose(self, context: Mapping[str, object], guess: Guess) -> SpeculationDecision:
        """Decide about a guess."""
        ...

    def executor(self) -> Executor:
        """Return what runs guessed calls."""
        ...

    def missed(self, cost: float) -> None:
        """Count `cost` ms as wasted."""
        ...


class ThreadExecution(Generic[T]):
    """A guessed call that runs in a thread, or waits for one."""

    def __init__(
        self,
        executor: Executor,
        call: Callable[[], T],
        clock: Callable[[], float],
        wasted: Callable[[float], None],
    ) -> None:
        """`wasted` is called with the ms that the call ran after it was discarded."""
        self._clock, self._call, self._wasted = clock, call, wasted
        self._running_since: float | None = None
        self._took_s: float | None = None
        self.begun = clock()
        self.future: Future[T] = executor.submit(copy_context().run, self._run)

    def _run(self) -> T:
        self._running_since = self._clock()
        try:
            return self._call()
        finally:
            self._took_s = self._clock() - self.begun

    def ran_s(self) -> float:
        """Return the seconds since the start, or until the end; 0 if it waits for a thread."""
        if self._running_since is None:
            return 0.0
        return self._clock() - self.begun if self._took_s is None else self._took_s

    def value(self) -> object:
        """Return what the call returned or raised; None if it has not ended, or was cancelled."""
        return value_of(self.future)

    def cancel(self) -> None:
        """Cancel the call if it waits for a thread; otherwise count how long it goes on."""
        if not self.future.cancel() and not self.future.done():
            at = self._clock()
            self.future.add_done_callback(lambda _: self._wasted((self._clock() - at) * 1000.0))


class CallInThread(Generic[T]):
    """A guessed call that a requested one matches: its result answers that one, once."""

    def __init__(self, call_id: str, run: GuessRun, state: TurnState) -> None:
        self.call_id, self._run, self._state = call_id, run, state

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self._run.guess.tool

    def result(self, timeout_s: float | None = None) -> T:
        """Return the result, once; wait for it, at most `timeout_s`.

        Raises:
            GuessFailed: There is no usable result: make the call. The guessed call failed, has not
                begun or ended in time, its result was returned before, or the turn was closed.
        """
        execution = self._run.execution
        if not isinstance(execution, ThreadExecution) or not self._run.take():
            raise GuessFailed(f"the guessed call of {self.tool} has no result to return (again)")
        future: Future[T] = execution.future
        used = False
        try:
            value = _value_of(future, self.tool, timeout_s)
            used = self._state.use(self.call_id, self._run)
            if not used:
                raise GuessFailed(f"the turn of the guessed call of {self.tool} was closed")
            return value
        finally:
            if not used:
                self._run.fail()


class ThreadTurn(BaseTurn[ThreadTurnSpeculator, RunBlocking[T]], Generic[T]):
    """A turn with guesses, made by `Speculator.turn`: `Turn` for threads.

    As a context manager it is started and closed; leaving it without `settle` means that the model
    requested no calls, leaving it by an exception that they are unknown.
    """

    def start(self) -> None:
        """Decide, start the guessed calls that are worth it, and log the predictions.

        Raises `TurnSettled` if the turn was started before.
        """
        self._state.start()
        try:
            for run in self._state.runs:
                run.choice = self._speculator.choose(self._context, stakes(run.guess))
            self._speculator.opened(self)
            for run in self._state.runs:
                run.start(partial(self._make, run))
        except BaseException:
            self.close()
            raise
        for run in self._state.runs:
            run.predicted()
        self._state.ready()

    def _make(self, run: GuessRun) -> ThreadExecution[T]:
        call = partial(self._run, run.guess.tool, run.guess.arguments)
        wasted = self._speculator.missed if run.guess.cost is None else _ignore
        return ThreadExecution(self._speculator.executor(), call, self._clock, wasted)

    def settle(self, calls: Sequence[CallWithId]) -> dict[str, CallInThread[T]]:
        """Decide which guesses were right, at once; see `Turn.settle`."""
        found = self._state.settle(calls)
        return {call: CallInThread(call, run, self._state) for call, run in found.items()}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and not self._state.settled:
            self.settle(())
        self.close()


def _ignore(wasted_ms: float) -> None:
    """The guess has a cost of its own, which was counted when it was discarded."""


def _value_of(future: Future[T], tool: str, timeout_s: float | None) -> T:
    """Return the usable result of a call, and wait for it. Raises `GuessFailed`."""
    if future.cancel():  # it waits for a thread: making the call is quicker
        raise GuessFailed(f"the guessed call of {tool} has not begun")
    try:
        value = future.result(timeout_s)
    except CancelledError as error:
        raise GuessFailed(f"the guessed call of {tool} was cancelled") from error
    except BaseException as error:
        if not future.done():
            if isinstance(error, TimeoutError):
                raise GuessFailed(f"the guessed call of {tool} has not ended in time") from error
            raise  # not of the call, such as KeyboardInterrupt while waiting
        raise GuessFailed(f"the guessed call of {tool} failed: {error!r:.200}") from error
    if marked_as_error(value):
        raise GuessFailed(f"the guessed call of {tool} returned an error")
    return value
