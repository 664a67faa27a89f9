"""Copies of agents for one run: their tools answer by guesses, and so do those after a handoff."""

from __future__ import annotations

import copy
import logging
from typing import Any, Final

from headstart.integrations.openai_agents.framework import sdk
from headstart.integrations.openai_agents.function_tools import CurrentRun, answering
from headstart.integrations.openai_agents.mcp_errors import ErrorReportingServer

_ORIGINAL: Final = "_headstart_original"


_LOG: Final = logging.getLogger(__name__)


def is_copy(agent: Any) -> bool:
    """Return whether the tools of an agent answer by guesses."""
    return hasattr(agent, _ORIGINAL)


def original(agent: Any) -> Any:
    """Return the agent of which `agent` is a copy, as the `last_agent` of a result is."""
    return getattr(agent, _ORIGINAL, agent)


class AgentCopies:
    """The copies of a run's agents, each made once. The agents themselves are not changed."""

    def __init__(self, current: CurrentRun) -> None:
        self._current = current
        self._copies: dict[int, tuple[Any, Any]] = {}

    def of(self, agent: Any) -> Any:
        """Return the copy of an agent; the agent itself if it cannot be copied."""
        agent = original(agent)
        known = self._copies.get(id(agent))
        if known is not None:
            return known[1]
        try:
            copied = agent.clone()
        except Exception as error:  # of a subclass with a constructor of its own
            _LOG.warning("an agent runs without guesses: it cannot be copied: %r", error)
            return agent
        self._copies[id(agent)] = agent, copied
        setattr(copied, _ORIGINAL, agent)
        copied.mcp_servers = [ErrorReportingServer(each) for each in agent.mcp_servers]
        copied.handoffs = [self._handoff(each) for each in agent.handoffs]
        copied.get_all_tools = self._resolving(copied)
        return copied

    def _handoff(self, given: Any) -> Any:
        if isinstance(given, sdk.Agent):
            return self.of(given)
        copied = copy.copy(given)

        async def invoke(*arguments: Any) -> Any:
            return self.of(await given.on_invoke_handoff(*arguments))

        copied.on_invoke_handoff = invoke
        return copied

    def _resolving(self, copied: Any) -> Any:
        """Return a function that returns the tools which the model is offered, each answering.

        They are resolved before each call of the model: those of MCP servers too, and as they
        are then.
        """
        own = copied.get_all_tools

        async def get_all_tools(context: Any) -> list[Any]:
            found = await own(context)
            copies = [answering(tool, self._current) for tool in found]
            run = self._current()
            if run is not None:
                run.offer(found, copies)
            return copies

        return get_all_tools
