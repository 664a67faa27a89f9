"""`SpeculationCapability`: speculation in an agent of Pydantic AI."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from headstart.integrations.pydantic_ai.guessed_tools import GUESS_PREFIX
from headstart.integrations.pydantic_ai.observed_run import ObservedPydanticRun
from headstart.integrations.setup import SpeculationSetup
from headstart.prediction.interface import RunPredictor

MOST: Final = 10_000
"""Most conversations whose predictors are kept."""


class SpeculationCapability(AbstractCapability[Any]):  # type: ignore[misc]
    """Starts the calls that the model will probably request while it still works them out.

        agent = Agent(model, tools=tools, capabilities=[
            SpeculationCapability(workflow_type="refund", read_only=["search"]),
        ])

    Its place in the list does not matter: calls are answered where the tool would be called, so the
    hooks of all capabilities see them. Arguments: those of `SpeculationSetup`.
    """

    def __init__(self, *, setup: SpeculationSetup | None = None, **arguments: Any) -> None:
        """Use a set-up, or make one of the arguments. Raises `InvalidArgument` for a wrong one."""
        self.setup = SpeculationSetup.of(setup, arguments)
        self._predictors: OrderedDict[str, RunPredictor] = OrderedDict()
        self._lock = threading.Lock()

    def get_ordering(self) -> CapabilityOrdering:
        """Outermost, so that a guessed call passes all toolsets, also those that approve."""
        return CapabilityOrdering(position="outermost")

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return the capability of one run, with the predictor of its conversation."""
        key = ctx.conversation_id
        with self._lock:
            known = self._predictors.pop(key, None) if key else None
        return _RunCapability(self, known or self.setup.run_predictor(), key)

    def keep(self, conversation: str | None, predictor: RunPredictor) -> None:
        """Keep the predictor of a conversation for its next run."""
        if conversation is None:
            return
        with self._lock:
            self._predictors[conversation] = predictor
            if len(self._predictors) > MOST:
                self._predictors.popitem(last=False)

    async def close(self) -> None:
        """Close the open turns, and stop their guessed calls."""
        await self.setup.close()


class _RunCapability(AbstractCapability[Any]):  # type: ignore[misc]
    """The capability of one run."""

    def __init__(
        self, shared: SpeculationCapability, predictor: RunPredictor, conversation: str | None
    ) -> None:
        self._shared, self._predictor, self._conversation = shared, predictor, conversation
        self._observed = ObservedPydanticRun(shared.setup, predictor)

    def get_ordering(self) -> CapabilityOrdering:
        return self._shared.get_ordering()

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return SpeculatedToolset(toolset, self._observed)

    async def wrap_run(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - Pydantic AI gives it
        *,
        handler: Any,
    ) -> AgentRunResult[Any]:
        try:
            result: AgentRunResult[Any] = await handler()
        except BaseException as error:
            stopped = isinstance(error, asyncio.CancelledError)
            await self._observed.finished("aborted" if stopped else "failure")
            raise
        else:
            paused = isinstance(result.output, DeferredToolRequests)
            response = None if paused else str(result.output)
            await self._observed.finished("partial" if paused else "success", response)
            return result
        finally:
            self._shared.keep(self._conversation, self._predictor)

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        toolset = None if ctx.tool_manager is None else ctx.tool_manager.toolset
        if toolset is None:
            return await handler(request_context)
        return await self._observed.around_model(
            ctx, toolset, request_context.messages, lambda: handler(request_context)
        )


@dataclass
class SpeculatedToolset(WrapperToolset[Any]):  # type: ignore[misc]
    """The tools of one run, whose calls may be answered by guesses."""

    observed: ObservedPydanticRun = field(repr=False)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Answer a call with its guessed result, or make it."""
        if (ctx.tool_call_id or "").startswith(GUESS_PREFIX):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        return await self.observed.around_tool(
            ctx, name, tool, tool_args, lambda: self.wrapped.call_tool(name, tool_args, ctx, tool)
        )
