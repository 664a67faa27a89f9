"""One run of the SDK as its hooks and tools observe it, and the guesses that answer calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headstart.events.constructors import Outcome
from headstart.integrations.openai_agents.agent_copies import is_copy
from headstart.integrations.openai_agents.framework import sdk
from headstart.integrations.openai_agents.function_tools import hints, make_call, refresh
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.started_call import StartedCall

_LOG: Final = logging.getLogger(__name__)


class ObservedAgentsRun:
    """Nothing here raises, or waits.

    `guarded`: input guardrails are checked while the model is called first; nothing is started
    until they have passed.
    """

    def __init__(self, run: AgentRun[Any], run_config: Any, *, guarded: bool) -> None:
        self.run = run
        self._offered: Sequence[Any] = ()
        self._copies: Sequence[Any] = ()
        self._run_config, self._guarded = run_config, guarded
        self._matches: dict[str, StartedCall[Any]] = {}
        self._arguments: dict[str, str] = {}
        self._begun: dict[str, float] = {}
        self._failed: set[str] = set()

    def offer(self, tools: Sequence[Any], copies: Sequence[Any]) -> None:
        """Set the tools that the model is offered at its next call, and their copies."""
        self._offered, self._copies = tools, copies

    def refresh(self) -> None:
        """Give the copies the fields that the tools have now: calls are decided about next."""
        for copied, tool in zip(self._copies, self._offered, strict=True):
            refresh(copied, tool)

    def model_started(self, context: Any, agent: Any) -> None:
        """Begin a call of the model: guess, and start calls."""
        if not is_copy(agent):
            self.offer((), ())
        by_name = {tool.name: tool for tool in self._offered}
        guarded, self._guarded = self._guarded, False

        async def make(tool: str, arguments: Mapping[str, object]) -> Any:
            return await make_call(by_name[tool], arguments, context, agent, self._run_config)

        try:
            self.run.offered(hints(self._offered))
            if not guarded:
                self.run.model_started(make)
        except Exception as error:
            _LOG.warning("a turn of the agent goes on without guesses: %r", error)

    def model_answered(self, output: Sequence[Any]) -> None:
        """Settle the model's answer."""
        try:
            calls = [
                RequestedCall(each.call_id, each.name, each.arguments)
                for each in output
                if each.type == "function_call"
            ]
            self._arguments = {call.id: call.arguments for call in calls}
            self._begun, self._failed = {}, set()
            self._matches = dict(self.run.model_answered(calls, _text(output)))
        except Exception as error:
            _LOG.warning("a turn of the agent goes on without its guesses: %r", error)
            self._matches = {}
            self.run.model_failed()

    def take(self, call_id: str, arguments: str) -> StartedCall[Any] | None:
        """Return the guessed call that answers a requested one, once."""
        match = self._matches.pop(call_id, None)
        return match if self._arguments.get(call_id) == arguments else None

    def tool_started(self, call_id: str) -> None:
        """Record the begin of a call."""
        self._begun[call_id] = time.perf_counter()

    def failed(self, call_id: str) -> None:
        """Note that the tool failed; the SDK may make a text of that."""
        self._failed.add(call_id)

    def raised(self, call_id: str, error: Exception) -> None:
        """Note that a call ends with an exception: no hook is called for it."""
        self._failed.add(call_id)
        self.tool_ended(call_id, repr(error))

    def tool_ended(self, call_id: str, result: object) -> None:
        """Record the end of a call."""
        begun = self._begun.pop(call_id, None)
        took_ms = None if begun is None else (time.perf_counter() - begun) * 1000.0
        error = call_id in self._failed
        self.run.tool_finished(call_id, result, error=error, duration_ms=took_ms)

    def ended_by(self, error: BaseException) -> None:
        """End the run with an exception."""
        self.run.finished("failure" if isinstance(error, Exception) else "aborted")

    def ended(self, result: Any) -> None:
        """End the run with its result. One that waits for an approval is `aborted`."""
        outcome: Outcome = "aborted" if getattr(result, "interruptions", None) else "success"
        output = result.final_output
        self.run.finished(outcome, output if isinstance(output, str) else None)


class ObservingHooks(sdk.RunHooks):  # type: ignore[misc]
    """Reports to a run, and calls the hooks of the caller."""

    def __init__(self, observed: ObservedAgentsRun, other: Any) -> None:
        self._observed, self._other = observed, sdk.RunHooks() if other is None else other

    async def on_llm_start(self, context: Any, agent: Any, *more: Any) -> None:
        """Guess."""
        self._observed.model_started(context, agent)
        await self._other.on_llm_start(context, agent, *more)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Settle the guesses."""
        self._observed.model_answered(response.output)
        await self._other.on_llm_end(context, agent, response)
        self._observed.refresh()

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Note the time."""
        await self._other.on_tool_start(context, agent, tool)
        if (call_id := getattr(context, "tool_call_id", None)) is not None:
            self._observed.tool_started(call_id)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """Log the call."""
        if (call_id := getattr(context, "tool_call_id", None)) is not None:
            self._observed.tool_ended(call_id, result)
        await self._other.on_tool_end(context, agent, tool, result)

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Call the caller's hooks."""
        await self._other.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Call the caller's hooks."""
        await self._other.on_agent_end(context, agent, output)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Call the caller's hooks."""
        await self._other.on_handoff(context, from_agent, to_agent)


def _text(output: Sequence[Any]) -> str:
    parts = [part for each in output if each.type == "message" for part in each.content]
    return "".join(getattr(part, "text", "") for part in parts)
