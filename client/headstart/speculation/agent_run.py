"""One run of an agent: binds a predictor, the speculator and the run's events for a framework."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from headstart.speculation.agent_runs.base_run import GUESS_S, BaseAgentRun
from headstart.speculation.calls import CallWithId
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.started_call import StartedCall
from headstart.speculation.turn import RunTool, Turn

__all__ = ["GUESS_S", "AgentRun"]

T = TypeVar("T")


class AgentRun(BaseAgentRun[AsyncSpeculator, StartedCall[T]], Generic[T]):
    """What the hooks of an agent framework call. Nothing here raises, or delays the agent.

        run = AgentRun(speculator, predictor.run(), context, tools)
        run.user("Where is order 7?")
        run.model_started(make_call)            # guesses, and starts calls, while the model thinks
        matches = run.model_answered(calls)     # all calls of the turn
        # in the tool's hook:
        if call.id in matches:
            try:
                result = await matches[call.id].result()
            except GuessFailed:
                result = await make_call(call.tool, call.arguments)
        run.tool_finished(call.id, result)
        run.finished()

    Where the calls of a turn become known one by one:

        match = run.call_requested(call)        # for each; others may follow
        run.tool_finished(call.id, result)      # at any time after it
        run.turn_finished()                     # all calls of the turn are known

    Each run is logged: the guesses with their outcomes, every other call as a `task_complete`, and
    the end as a `workflow_complete`, unless a `headstart.workflow` is current, which logs its own.
    The methods are called in one event loop. `ThreadAgentRun` is for agents in threads. Arguments:
    see `BaseAgentRun`.
    """

    _starting: asyncio.Task[Turn[T] | None] | None = None
    _turn: Turn[T] | None

    def model_started(self, run: RunTool[T]) -> None:
        """Begin a call of the model: guess, and start calls, in the background.

        `run`: makes a guessed call: of the tool's name and arguments, returns an awaitable. It
        raises where the framework would return a text that reports the failure.
        """
        self._end_turn()
        if not self._predictor.dropped:
            self._starting = asyncio.ensure_future(self._start(run))

    async def _start(self, run: RunTool[T]) -> Turn[T] | None:
        try:
            guesses = self._offered(await self._predictor.guess(self._limit, self._guess_s))
            if not guesses:
                return None
            turn = self._speculator.turn(
                self._events.context, guesses, run, limit=self._limit, parallel=self._parallel
            )
            await turn.start()
        except Exception as error:
            self._failed(error)
            return None
        if self._starting is not asyncio.current_task():
            turn.close()
            return None
        return turn

    async def guessed(self) -> int:
        """Wait until the guesses of the current call of the model are made; return how many run."""
        starting = self._starting
        if starting is None:
            return 0
        await asyncio.wait([starting])
        turn = None if starting.cancelled() else starting.result()
        return 0 if turn is None else turn.started

    def call_requested(self, call: CallWithId) -> StartedCall[T] | None:
        """Add one call of the turn; return the guessed call that answers it.

        The first one begins the model's answer. Wrong guesses run until `turn_finished`, or until
        `model_answered` gives all calls of the turn.

        Args:
            call: As it is made now. With the id of an earlier one it replaces that, which was
                changed since the model requested it.
        """
        self._begin_answer()
        try:
            self._requested[call.id] = call.tool
            self._calls[call.id] = call
            self._events.requested(call.id, call.arguments)
            return None if self._turn is None else self._turn.request(call)
        except Exception as error:
            if self._turn is not None:
                self._turn.close()
            self._failed(error)
            return None

    def _take_started(self) -> Turn[T] | None:
        starting, self._starting = self._starting, None
        if starting is None:
            return None
        if not starting.done():
            starting.cancel()
            return None
        return None if starting.cancelled() else starting.result()
