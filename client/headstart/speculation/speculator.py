"""The speculators that executors import: decide whether to start a guessed call early, and run it.

They use a reader for the threshold and the mode, the tool allowlist, and the cost budget.
`AsyncSpeculator` is for asyncio, `Speculator` for threads.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, TypeVar, Unpack

from headstart.arguments.checks import InvalidArgument
from headstart.speculation.base_speculator import (
    BaseSpeculator,
    Guesses,
    complete_context,
    require_reader,
    tenant_and_agent,
)
from headstart.speculation.calls import GuessedCall, RequestedCall
from headstart.speculation.decision import Action, Guess, SpeculationDecision, check_guess
from headstart.speculation.guessed_call import GuessFailed, check_run
from headstart.speculation.open_turns import Closable
from headstart.speculation.prediction_log import EventSink
from headstart.speculation.speculator_options import Options
from headstart.speculation.started_call import StartedCall
from headstart.speculation.thread_speculator import Speculator
from headstart.speculation.thread_turn import CallInThread, ThreadTurn
from headstart.speculation.turn import RunTool, Turn
from headstart.speculation.turn_state import TurnSettled
from headstart.thresholds.reader import AsyncThresholds, Context

__all__ = [
    "Action",
    "AsyncSpeculator",
    "CallInThread",
    "GuessFailed",
    "GuessedCall",
    "InvalidArgument",
    "Options",
    "RequestedCall",
    "SpeculationDecision",
    "Speculator",
    "StartedCall",
    "ThreadTurn",
    "Turn",
    "TurnSettled",
]

T = TypeVar("T")


class AsyncSpeculator(BaseSpeculator):
    """`Speculator` for asyncio, which also runs guessed calls. Options: see `Options`.

    Predictions and outcomes are logged to `emitter`, if one is given.

        guess = headstart.GuessedCall("search", {"query": "lights"}, 0.93)
        async with speculator.turn(context, [guess], run_tool) as turn:
            calls = await model.next_calls()
            matches = turn.settle(calls)
    """

    def __init__(
        self,
        thresholds: AsyncThresholds,
        emitter: EventSink | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Raises `InvalidArgument` naming an option that is unknown or cannot be used."""
        super().__init__(emitter, **options)
        require_reader(thresholds, asynchronous=True)
        self._thresholds = thresholds
        self._reaping: asyncio.AbstractEventLoop | None = None
        """The loop that has a timer for turns that are left open."""

    async def decide(
        self,
        context: Context,
        tool: str,
        confidence: float,
        *,
        gain: float | None = None,
        cost: float | None = None,
        calibrated: bool = False,
    ) -> SpeculationDecision:
        """Decide whether to speculate, suggest or ask; see `Speculator.decide`."""
        guess = check_guess(Guess(tool, confidence, gain, cost, calibrated))
        return await self.choose(complete_context(context, self._thresholds), guess)

    async def choose(self, context: Context, guess: Guess) -> SpeculationDecision:
        """Decide about a guess; `context` is complete."""
        mode = await self._thresholds.mode(*tenant_and_agent(context))
        return self._decide(guess, mode, await self._thresholds.get(context, tool=guess.tool))

    def turn(
        self,
        context: Context,
        guesses: Guesses,
        run: RunTool[T],
        *,
        limit: int = 1,
        parallel: bool = True,
    ) -> Turn[T]:
        """Return a turn with guessed calls, to be entered with `async with`, or started.

        Args:
            context: As for `decide`. With an emitter it must have a `workflow_id`, its own or that
                of the current `headstart.workflow`.
            guesses: `GuessedCall` or `PredictedCall`, best first.
            run: Makes a guessed call: a function of the tool's name and the arguments that returns
                an awaitable. It must tolerate cancellation, which happens if the guess is wrong.
                A blocking function is passed as `lambda *call: asyncio.to_thread(function, *call)`.
            limit: How many of the guesses are used. Guesses of tools that never run on a guess are
                logged in addition.
            parallel: The executor makes the calls of a turn at once; otherwise one after another.

        Raises:
            InvalidArgument: `run` or another argument cannot be used, or a key of the context is a
                misspelling of a level or an id.
            ValueError: The `workflow_id` is missing.
        """
        check_run(run)
        complete = complete_context(context, self._thresholds)
        state = self._state(complete, guesses, limit=limit, parallel=parallel)
        return Turn(self, complete, state, run, self._clock)

    def opened(self, turn: Closable) -> None:
        """Keep a turn until it is closed, and close those that were left open."""
        super().opened(turn)
        self._reap_later(asyncio.get_running_loop())

    def _reap_later(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have turns that are left open closed, also where no other turn is opened later."""
        if self._reaping is not loop:
            self._reaping = loop
            loop.call_later(self._open.open_s, self._reap_and_repeat, loop)

    def _reap_and_repeat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reap()
        if self._reaping is loop:
            self._reaping = None
            if len(self._open):
                self._reap_later(loop)

    async def close(self) -> None:
        """Close all open turns, and wait for the calls that this cancels, at most 5 s.

        Turns that are started later start no calls, and log nothing.
        """
        await asyncio.gather(*(turn.wait_cancelled() for turn in self._close_all()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
