"""`AgentRun` for agents that run in threads, without an event loop."""

from __future__ import annotations

from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, TypeVar

from headstart.speculation.agent_runs.base_run import BaseAgentRun
from headstart.speculation.thread_speculator import Speculator
from headstart.speculation.thread_turn import CallInThread, RunBlocking, ThreadTurn

T = TypeVar("T")


class ThreadAgentRun(BaseAgentRun[Speculator, CallInThread[T]], Generic[T]):
    """What the hooks of a synchronous agent framework call; see `AgentRun`.

    `matches[id].result()` blocks, and `make_call` runs in a thread with the context variables of
    the caller of `model_started`. The hooks of a turn's tools may be called in several threads.
    Arguments: see `BaseAgentRun`.
    """

    _starting: Future[None] | None = None
    _started: ThreadTurn[T] | None = None
    _asked = 0
    """Calls of the model and answers so far: by it a start that comes too late is recognised."""

    def model_started(self, run: RunBlocking[T]) -> None:
        """Begin a call of the model: guess, and start calls, in other threads.

        `run`: makes a guessed call: of the tool's name and arguments, returns the result. It raises
        where the framework would return a text that reports the failure.
        """
        self._end_turn()
        if self._predictor.dropped:
            return
        context = copy_context()
        try:
            self._starting = self._speculator.executor().submit(
                context.run, self._start, run, self._asked
            )
        except RuntimeError as error:  # the speculator, or the interpreter, is being closed
            self._failed(error)

    def _start(self, run: RunBlocking[T], asked: int) -> None:
        try:
            guesses = self._offered(self._predictor.guess_blocking(self._limit, self._guess_s))
            if not guesses or asked != self._asked:
                return
            turn = self._speculator.turn(
                self._events.context, guesses, run, limit=self._limit, parallel=self._parallel
            )
            turn.start()
        except Exception as error:
            self._failed(error)
            return
        with self._lock:
            in_time = asked == self._asked
            if in_time:
                self._started = turn
        if not in_time:
            turn.close()

    def guessed(self) -> int:
        """Wait until the guesses of the current call of the model are made; return how many run."""
        if self._starting is not None:
            self._starting.exception()
        turn = self._started
        return 0 if turn is None else turn.started

    def _take_started(self) -> ThreadTurn[T] | None:
        with self._lock:
            self._asked += 1
            turn, self._started, self._starting = self._started, None, None
        return turn
