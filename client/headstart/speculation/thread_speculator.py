"""`Speculator`: decides whether to start a guessed call early, and runs it in a thread."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from headstart.arguments.checks import number
from headstart.speculation.base_speculator import (
    BaseSpeculator,
    Guesses,
    complete_context,
    require_reader,
    tenant_and_agent,
)
from headstart.speculation.decision import Guess, SpeculationDecision, check_guess
from headstart.speculation.guessed_call import check_run
from headstart.speculation.prediction_log import EventSink
from headstart.speculation.speculator_options import Options
from headstart.speculation.thread_turn import RunBlocking, ThreadTurn
from headstart.thresholds.reader import Context, Thresholds

T = TypeVar("T")
THREADS: Final = 4
"""Guessed calls that run at once in threads."""


class Speculator(BaseSpeculator):
    """Decides about guesses, and runs guessed calls in threads. Thread-safe; close it at the end.

    Predictions and outcomes are logged to `emitter`, if one is given. Options: see `Options`.

        speculator = Speculator(thresholds, allowed={"search"})
        choice = speculator.decide(context, "search", 0.93, gain=400, cost=900)
        if choice.action == "speculate": ...
    """

    def __init__(
        self,
        thresholds: Thresholds,
        emitter: EventSink | None = None,
        *,
        threads: int = THREADS,
        **options: Unpack[Options],
    ) -> None:
        """Raises `InvalidArgument` naming an option that is unknown or cannot be used.

        `threads`: most guessed calls that run at once. They are started as they are needed.
        """
        super().__init__(emitter, **options)
        require_reader(thresholds, asynchronous=False)
        self._thresholds = thresholds
        self._threads = int(number("threads", threads, 1, whole=True))
        self._pool: ThreadPoolExecutor | None = None

    def decide(
        self,
        context: Context,
        tool: str,
        confidence: float,
        *,
        gain: float | None = None,
        cost: float | None = None,
        calibrated: bool = False,
    ) -> SpeculationDecision:
        """Decide whether to speculate, suggest or ask, with the reason.

        Args:
            context: As for `Thresholds.get`; its `agent_id` may have a mode of its own. Completed
                from the current `headstart.workflow`.
            tool: The guessed tool.
            confidence: Of the guess, in [0, 1].
            gain: Latency in ms that a hit saves; by default the context's average.
            cost: Cost in ms that a miss wastes; by default the context's average.
            calibrated: The confidence is the share of such guesses that are right: it is believed
                in a cold start, as that of a `PredictedCall` (`Threshold.for_guess`).

        Raises:
            InvalidArgument: Names the argument or key that cannot be used.
        """
        guess = check_guess(Guess(tool, confidence, gain, cost, calibrated))
        return self.choose(complete_context(context, self._thresholds), guess)

    def choose(self, context: Context, guess: Guess) -> SpeculationDecision:
        """Decide about a guess; `context` is complete."""
        mode = self._thresholds.mode(*tenant_and_agent(context))
        return self._decide(guess, mode, self._thresholds.get(context, tool=guess.tool))

    def turn(
        self,
        context: Context,
        guesses: Guesses,
        run: RunBlocking[T],
        *,
        limit: int = 1,
        parallel: bool = True,
    ) -> ThreadTurn[T]:
        """Return a turn with guessed calls, to be entered with `with`, or started.

        `run` makes a guessed call, in a thread: a function of the tool's name and the arguments
        that returns the result. The other arguments, and what is raised: `AsyncSpeculator.turn`.
        """
        check_run(run)
        complete = complete_context(context, self._thresholds)
        state = self._state(complete, guesses, limit=limit, parallel=parallel)
        return ThreadTurn(self, complete, state, run, self._clock)

    def executor(self) -> Executor:
        """Return the pool in which guessed calls run. Raises `RuntimeError` after `close`."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the speculator is closed")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "headstart-guess")
            return self._pool

    def close(self) -> None:
        """Close all open turns, and end the threads. It does not wait for calls that run.

        Turns that are started later start no calls, and log nothing.
        """
        self._close_all()
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
