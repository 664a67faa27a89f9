"""`SpeculationMiddleware`: speculation in an agent of LangChain's `create_agent`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool

from headstart.integrations.langchain.hooks import SpeculationHooks, messages_of
from headstart.integrations.langchain.other_middleware import calling_list, is_innermost
from headstart.integrations.setup import SpeculationSetup

_LOG: Final = logging.getLogger(__name__)


class SpeculationMiddleware(AgentMiddleware[Any, Any, Any]):  # type: ignore[misc]
    """Starts the calls that the model will probably request while it still works them out.

        agent = create_agent(model, tools, middleware=[
            ...,
            SpeculationMiddleware(workflow_type="refund", read_only=["search"]),
        ])

    List it last: what is listed after it would not see the calls that it answers. If some is, it
    logs an error, and starts nothing. Arguments: those of `SpeculationSetup`.
    """

    def __init__(self, *, setup: SpeculationSetup | None = None, **arguments: Any) -> None:
        """Use a set-up, or make one of the arguments. Raises `InvalidArgument` for a wrong one."""
        super().__init__()
        self.hooks = SpeculationHooks(SpeculationSetup.of(setup, arguments))
        self._bypassing = False

    @property
    def tools(self) -> Sequence[BaseTool]:
        """No tools. `create_agent` reads this, which is when the other middleware is found."""
        listed = calling_list()
        if listed is not None:
            self.hooks.guessable.excluded |= listed.approved()
            if listed.pauses:
                self.hooks.answers = False
                _LOG.warning("the agent pauses before its tools: no guessed call is started")
            if inner := listed.inner(self):
                self._refuse(", ".join(inner))
        return ()

    def _refuse(self, inner: str) -> None:
        if not self._bypassing:
            self._bypassing = True
            self.hooks.answers = False
            _LOG.error(
                "SpeculationMiddleware must be listed last: its answers would bypass %s. Until "
                "then it only logs", inner,
            )  # fmt: skip

    def _may_answer(self, handler: object) -> bool:
        """Return whether no other middleware is within this one; refuse from now on if one is."""
        if not is_innermost(handler):
            self._refuse("the middleware after it")
        return not self._bypassing

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Any:
        """Call the model, and start guessed calls in threads meanwhile."""
        self._may_answer(handler)
        return self.hooks.around_blocking_model(
            messages_of(request.state), request.tools, lambda: handler(request), answer_in
        )

    # LangChain wraps hooks for LangSmith, coroutine functions by two hops to other threads a call,
    # which take longer than all else here. So these return awaitables, but are none.

    def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Awaitable[Any]:
        """Call the model, and start guessed calls meanwhile."""
        self._may_answer(handler)
        return self.hooks.around_model(
            messages_of(request.state), request.tools, lambda: handler(request), answer_in
        )

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Answer a call with its guessed result, or make it."""
        return self.hooks.around_blocking_tool(
            request, handler, may_answer=self._may_answer(handler)
        )

    def awrap_tool_call(
        self, request: Any, handler: Callable[[Any], Awaitable[Any]]
    ) -> Awaitable[Any]:
        """Answer a call with its guessed result, or make it."""
        return self.hooks.around_tool(request, handler, may_answer=self._may_answer(handler))

    async def close(self) -> None:
        """End the runs that are under way, and stop their guessed calls."""
        await self.hooks.close()


def answer_in(response: object) -> AIMessage | None:
    """Return the model's message in the response of a handler."""
    if isinstance(response, AIMessage):
        return response
    response = getattr(response, "model_response", response)  # of an ExtendedModelResponse
    found = response.result if isinstance(response, ModelResponse) else ()
    return next((each for each in found if isinstance(each, AIMessage)), None)
