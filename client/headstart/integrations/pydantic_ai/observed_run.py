"""One run of an agent as its hooks observe it, and the calls that its guesses answer."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelResponse
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from headstart.events.constructors import Outcome
from headstart.integrations.pydantic_ai import guessed_tools
from headstart.integrations.pydantic_ai.guessed_tools import GuessedResult
from headstart.integrations.pydantic_ai.messages import (
    new_tool_results,
    new_user_texts,
    requested_calls,
    text_in,
)
from headstart.integrations.setup import SpeculationSetup
from headstart.prediction.interface import RunPredictor
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.started_call import StartedCall

_LOG: Final = logging.getLogger(__name__)
_DEFERRED: Final = (ApprovalRequired, CallDeferred)


class ObservedPydanticRun:
    """Reports a run of the agent to an `AgentRun`, and takes the results of guesses from it.

    It begins with the first call of the model, or of a tool where a run is resumed.
    """

    def __init__(self, setup: SpeculationSetup, predictor: RunPredictor) -> None:
        self._setup, self._predictor = setup, predictor
        self._run: AgentRun[GuessedResult] | None = None
        self._lost = False
        self._matches: dict[str, StartedCall[GuessedResult]] = {}
        self._requested_arguments: dict[str, Any] = {}
        """The arguments of the turn's calls as the model gave them."""
        self._open: dict[str, str] = {}
        """The tools of the turn's calls whose end was not reported, by the calls' ids."""

    def _begun(self, ctx: RunContext[Any]) -> AgentRun[GuessedResult] | None:
        if self._run is None and not self._lost:
            manager = ctx.tool_manager
            hints = {} if manager is None else guessed_tools.hints(manager)
            try:
                self._run = self._setup.run(hints, predictor=self._predictor)
            except Exception as error:
                self._lost = True
                _LOG.warning("a run of the agent goes on without guesses: %r", error)
        return self._run

    async def around_model(
        self,
        ctx: RunContext[Any],
        toolset: AbstractToolset[Any],
        messages: Any,
        call: Callable[[], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        """Call the model, and start guessed calls meanwhile."""
        run = self._begun(ctx)
        if run is None:
            return await call()
        manager = ctx.tool_manager
        for call_id, content in new_tool_results(messages):
            if call_id in self._open:  # it ended before it reached the tool
                self._ended(run, call_id, content, error=True, took_ms=0.0)
        for text in new_user_texts(messages):
            run.user(text)

        async def make(tool: str, arguments: Mapping[str, object]) -> GuessedResult:
            return await guessed_tools.make_call(ctx, toolset, tool, arguments)

        if manager is not None and manager.get_parallel_execution_mode() != "sequential":
            run.model_started(make)
        try:
            response = await call()
        except BaseException:
            run.model_failed()
            raise
        try:
            self._answered(run, ctx, response)
        except Exception as error:
            _LOG.warning("a turn of the agent goes on without its guesses: %r", error)
            run.model_failed()
        return response

    def _answered(
        self, run: AgentRun[GuessedResult], ctx: RunContext[Any], response: ModelResponse
    ) -> None:
        manager = ctx.tool_manager
        calls = requested_calls(response, manager)
        self._open = {call.id: call.tool for call in calls}
        self._requested_arguments = {call.id: call.arguments for call in calls}
        self._matches = dict(run.model_answered(calls, text_in(response)))
        behind = False
        for call in calls:
            tool = None if manager is None else manager.get_tool_def(call.tool)
            if behind:  # a sequential call may change what this one returns
                self._matches.pop(call.id, None)
            behind = behind or (tool is not None and tool.sequential)

    async def around_tool(
        self,
        ctx: RunContext[Any],
        name: str,
        tool: ToolsetTool[Any],
        arguments: Mapping[str, object],
        call: Callable[[], Awaitable[Any]],
    ) -> Any:
        """Answer a call with its guessed result, once, or make it."""
        run, call_id = self._begun(ctx), ctx.tool_call_id
        if run is None or call_id is None:
            return await call()
        if call_id not in self._open:  # again, after it was deferred, or of another tool's
            self._open[call_id] = name
            run.tool_retried(call_id, name, arguments)
        begun = time.perf_counter()
        try:
            guessed = await self._guessed(ctx, call_id, tool, arguments)
            result = await call() if guessed is None else guessed.value
        except _DEFERRED:
            self._open.pop(call_id, None)
            raise
        except BaseException as error:
            took_ms = (time.perf_counter() - begun) * 1000.0
            self._ended(run, call_id, repr(error), error=True, took_ms=took_ms)
            raise
        took_ms = (time.perf_counter() - begun) * 1000.0
        self._ended(run, call_id, result, error=False, took_ms=took_ms)
        return result

    async def _guessed(
        self,
        ctx: RunContext[Any],
        call_id: str,
        tool: ToolsetTool[Any],
        arguments: Mapping[str, object],
    ) -> GuessedResult | None:
        match = self._matches.pop(call_id, None)
        if match is None:
            return None
        try:
            asked = _mapping_of(self._requested_arguments.get(call_id))
            if guessed_tools.validated(ctx, tool, asked) != arguments:  # a hook has changed them
                return None
            guessed = await match.result()
        except (GuessFailed, ValueError) as error:  # a ValidationError is a ValueError
            _LOG.debug("the call is made: %s", error)
            return None
        ctx.usage.incr(guessed.usage)
        return guessed

    def _ended(
        self,
        run: AgentRun[GuessedResult],
        call_id: str,
        result: object,
        *,
        error: bool,
        took_ms: float,
    ) -> None:
        self._open.pop(call_id, None)
        content = getattr(result, "return_value", result)  # of a ToolReturn
        run.tool_finished(call_id, content, error=error, duration_ms=took_ms)
        if not self._open:
            run.turn_finished()

    async def finished(self, outcome: Outcome, response: str | None = None) -> None:
        """End the run. Guessed calls that still run are cancelled."""
        self._matches.clear()
        if self._run is not None:
            self._run.finished(outcome, response)
            await asyncio.sleep(0)  # or the loop of `run_sync` would stop before they are


def _mapping_of(arguments: Any) -> Mapping[str, object]:
    """Return the arguments of a call, which a model gives as JSON or as a dict."""
    return json.loads(arguments) if isinstance(arguments, str) else arguments  # type: ignore[no-any-return]
