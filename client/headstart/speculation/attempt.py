"""One guessed call run early: committed at most once if the real call matches, else thrown away.

Either way the prediction is logged with its outcome, also when the decision was not to run it, so
that every policy can be judged on the same log. The decision itself is the speculator's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from headstart.speculation.argument_equality import same_arguments
from headstart.speculation.decision import SpeculationDecision
from headstart.speculation.guessed_call import GuessFailed, NoAwaitable, awaited, marked_as_error
from headstart.speculation.prediction_log import PredictionLog

DISCARD_S: Final = 5.0
"""Seconds that leaving an attempt waits for a call that it has cancelled."""

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class AttemptResolved(RuntimeError):
    """The attempt is spent: it is entered once, and told once what the real call is, so that a
    result is committed at most once.
    """


class Resolution(NamedTuple, Generic[T]):
    """What became of the guess. `hit`: `value` is the result of the real call; do not make it.

    Without a hit make the call as if nothing had been guessed; `error` is what the guessed call
    raised, where it was the right one and failed: `GuessFailed` where its result says so.
    """

    hit: bool
    value: T | None = None
    error: BaseException | None = None


class Deciding(Protocol):
    """The speculator, as far as an attempt needs it."""

    async def choose(self) -> SpeculationDecision:
        """Decide about the guess."""
        ...

    def begin(self) -> bool:
        """Take the guess's cost from what may be wasted; False where that is used up."""
        ...

    def end(self, wasted: float | None, *, failed: bool = False) -> None:
        """Give it back, and count what was wasted in ms; None where the result was committed.

        `failed`: the guess was right, and the guessed call failed.
        """
        ...


class Attempt(Generic[T]):
    """`async with` it; `resolve()` as soon as the real call is known.

    `choice` is the decision; `speculated` whether the guessed call was started.
    """

    choice: SpeculationDecision

    def __init__(
        self,
        deciding: Deciding,
        log: PredictionLog,
        arguments: object,
        call: Callable[[], Awaitable[T]],
        clock: Callable[[], float],
    ) -> None:
        self._deciding, self._log, self._clock = deciding, log, clock
        self._arguments, self._call = arguments, call
        self._task: asyncio.Task[T] | None = None
        self._entered = self._predicted = self._resolved = self._settled = False
        self._begun = self._took_s = 0.0

    @property
    def speculated(self) -> bool:
        """Whether the guessed call was started."""
        return self._task is not None

    async def __aenter__(self) -> Self:
        """Decide, start the guessed call where it is worth it, and log the prediction.

        Raises `TypeError`, before anything is logged, where the call returns no awaitable, and
        `AttemptResolved` where it was entered before.
        """
        if self._entered:
            raise AttemptResolved(
                "this attempt was entered before: make one with attempt() for each guess"
            )
        self._entered = True
        self.choice = await self._deciding.choose()
        if self.choice.action == "speculate" and self._deciding.begin():
            await self._start()
        self._log.predicted(self.choice, self.speculated)
        self._predicted = True
        return self

    async def _start(self) -> None:
        """Start the guessed call, and let it run until it waits for something."""
        self._begun = self._clock()
        self._task = task = asyncio.ensure_future(self._run())
        task.add_done_callback(_consume)
        try:
            await asyncio.sleep(0)
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, NoAwaitable):
                raise error
        except BaseException:
            self._discard()
            raise

    async def _run(self) -> T:
        try:
            return await awaited(self._call, self._log.guess.tool)
        finally:
            self._took_s = self._clock() - self._begun

    async def resolve(self, tool: str | None, arguments: object = None) -> Resolution[T]:
        """Tell the real call (None: there is none) and return what became of the guess.

        Waits for the guessed call where it is the right one; cancelled meanwhile, its result is
        thrown away. Raises `AttemptResolved` the second time and after the block, `RuntimeError`
        before it.
        """
        if not self._predicted:
            raise RuntimeError(
                "this attempt has not begun: call resolve() within `async with` of the attempt"
            )
        if self._resolved:
            raise AttemptResolved("this attempt is resolved: its result is given out at most once")
        self._resolved = True
        log = self._log
        correct = tool == log.guess.tool and same_arguments(arguments, self._arguments)
        task, resolved_at = self._task, self._clock()
        if task is None:
            log.resolved(tool, correct, speculated=False)
            return Resolution(False)
        if not correct:
            wasted = self._discard()
            log.resolved(tool, False, speculated=True, cost_ms=wasted)
            return Resolution(False)
        committed = False
        try:
            value = await task
            if marked_as_error(value):
                error = GuessFailed(f"the guessed call of {log.guess.tool} returned an error")
                return Resolution(False, error=error)
            committed = True
            return Resolution(True, value)
        except asyncio.CancelledError:
            if _being_cancelled():
                raise
            return Resolution(False, error=asyncio.CancelledError("the guessed call"))
        except Exception as error:
            return Resolution(False, error=error)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit) or not _raised_by(task, error):
                raise
            return Resolution(False, error=error)
        finally:
            self._committed(tool, resolved_at) if committed else self._failed(tool)

    def _committed(self, tool: str | None, resolved_at: float) -> None:
        self._settle(None)
        # what a hit saves is the part of its run that nobody waited for
        saved = min(self._took_s or float("inf"), resolved_at - self._begun)
        self._log.resolved(
            tool, True, speculated=True, gain_ms=saved * 1000.0, took_ms=self._took_s * 1000.0,
            success=True,
        )  # fmt: skip

    def _failed(self, tool: str | None) -> None:
        """Count and log a right guess whose call saved nothing: it failed, or nobody waited."""
        wasted = self._discard(failed=True)
        self._log.resolved(tool, False, speculated=True, cost_ms=wasted, success=False, failed=True)

    def _discard(self, *, failed: bool = False) -> float:
        """Cancel the guessed call; return what it has cost, in ms."""
        task = self._task
        if task is None or self._settled:
            return 0.0
        ran_s = self._took_s if task.done() else self._clock() - self._begun
        task.cancel()
        cost = self._log.guess.cost
        wasted = ran_s * 1000.0 if cost is None else cost
        self._settle(wasted, failed=failed)
        return wasted

    def _settle(self, wasted: float | None, *, failed: bool = False) -> None:
        if not self._settled:
            self._settled = True
            self._deciding.end(wasted, failed=failed)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._resolved:
            self._resolved = True
            wasted = self._discard()
            if error is None:
                self._log.resolved(None, False, speculated=self.speculated, cost_ms=wasted)
            else:  # what the real call would have been is not known
                self._log.ended()
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=DISCARD_S)
            if not self._task.done():
                tool = self._log.guess.tool
                _LOG.warning("the guessed call of %s ignores that it was cancelled", tool)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _raised_by(task: asyncio.Task[Any], error: BaseException) -> bool:
    return task.done() and not task.cancelled() and task.exception() is error


def _consume(task: asyncio.Task[Any]) -> None:
    """Look at what a task raised, so that asyncio does not report it as forgotten."""
    if not task.cancelled():
        task.exception()
