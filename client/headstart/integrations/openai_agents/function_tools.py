"""Which function tools may be guessed, how a guessed call is made, and how a call is answered."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from headstart.integrations.openai_agents.framework import (
    sdk,
    tool_context,
    tools,
    traces,
    tracing_scope,
)
from headstart.integrations.openai_agents.mcp_errors import failed_mcp_calls
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.started_call import StartedCall

_CALL_ID: Final = "headstart-guess"
"""The id of guessed calls; a tool can see it, the model cannot."""
_NO_HINTS: Final[Mapping[str, object]] = {}
_FAILED_BY_DEFAULT: Final = "_function_tool_default_failure_handled"
"""Set on a call's context if the SDK turned the tool's exception into a text."""


class CallsOfRun(Protocol):
    """The run, as far as the copy of a tool uses it."""

    def offer(self, tools: Sequence[Any], copies: Sequence[Any]) -> None:
        """Set the tools that the model is offered at its next call, and their copies."""
        ...

    def take(self, call_id: str, arguments: str) -> StartedCall[Any] | None:
        """Return the guessed call that answers a requested one, once."""
        ...

    def failed(self, call_id: str) -> None:
        """Note that the tool failed."""
        ...

    def raised(self, call_id: str, error: Exception) -> None:
        """Note that a call ends with an exception."""
        ...


CurrentRun = Callable[[], CallsOfRun | None]


def may_be_guessed(tool: Any) -> bool:
    """Return whether a tool's calls depend on no decision that comes after the model's answer.

    That is a function tool without approval and input guardrails, which is always enabled. Its
    output guardrails are applied to answers, too. Agents as tools are runs of their own.
    """
    return (
        isinstance(tool, sdk.FunctionTool)
        and tool.needs_approval is False
        and not tool.tool_input_guardrails
        and tool.is_enabled is True
        and tool.allowed_callers is None
        and not (tool.defer_loading or tool._tool_namespace or _is_run(tool))
        and not _takes_narrow_context(tool)
    )


def hints(offered: Iterable[Any]) -> dict[str, object]:
    """Return the annotations of each tool that may be guessed, by its name."""
    return {tool.name: _hints(tool) for tool in offered if may_be_guessed(tool)}


def _hints(tool: Any) -> object:
    annotations = tool.mcp_annotations
    return _NO_HINTS if annotations is None else {"annotations": annotations}


def _is_run(tool: Any) -> bool:
    return bool(tool._is_agent_tool or tool._is_codex_tool)


def _takes_narrow_context(tool: Any) -> bool:
    """Return whether the SDK would call a function with a context that has no id of the call."""
    function = tool.on_invoke_tool
    if isinstance(function, tools._FailureHandlingFunctionToolInvoker):
        return False
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    return first is not None and "RunContextWrapper" in str(first.annotation)


async def make_call(
    tool: Any, arguments: Mapping[str, object], context: Any, agent: Any, run_config: Any
) -> Any:
    """Make a guessed call outside of the run's trace and usage; raises what the tool raises."""
    raw = json.dumps(dict(arguments))
    own = tool_context.ToolContext(
        context.context, tool_name=tool.name, tool_call_id=_CALL_ID, tool_arguments=raw,
        agent=agent, run_config=run_config, turn_input=context.turn_input,
    )  # fmt: skip
    raising = tools.set_function_tool_failure_error_function(copy.copy(tool), None)
    tracing_scope.Scope.set_current_trace(traces.NoOpTrace())  # of this call's own task
    tracing_scope.Scope.set_current_span(None)
    with failed_mcp_calls() as failed:
        async with asyncio.timeout(tool.timeout_seconds):
            result = await raising.on_invoke_tool(own, raw)
    if failed:
        raise GuessFailed(f"the MCP tool {failed[0]} returned an error")
    return result


def answering(tool: Any, current: CurrentRun) -> Any:
    """Return a copy of a function tool that answers calls by the guesses of the current run.

    Other tools are returned as they are. The copy has the fields of the tool as they are now.
    """
    if not isinstance(tool, sdk.FunctionTool) or _is_run(tool) or _takes_narrow_context(tool):
        return tool
    answered = object.__new__(type(tool))
    answered.__dict__.update(tool.__dict__)
    answered.on_invoke_tool = _Answering(tool, current)
    return answered


def refresh(copied: Any, tool: Any) -> None:
    """Give a copy of a tool the fields that the tool has now, such as `needs_approval`."""
    if copied is not tool:
        copied.__dict__.update({**tool.__dict__, "on_invoke_tool": copied.on_invoke_tool})


class _Answering:
    """Makes a call of a tool, unless a guess answers it. Notes the failures that texts hide."""

    def __init__(self, tool: Any, current: CurrentRun) -> None:
        self.tool, self._current = tool, current
        if tools._SYNC_FUNCTION_TOOL_MARKER in getattr(tool.on_invoke_tool, "__dict__", {}):
            setattr(self, tools._SYNC_FUNCTION_TOOL_MARKER, True)

    def __getattr__(self, name: str) -> Any:
        """Return what the SDK reads of the tool's own function."""
        if name in {"tool", "__agents_bind_function_tool__"}:
            raise AttributeError(name)
        return getattr(self.tool.on_invoke_tool, name)

    async def __call__(self, context: Any, arguments: str) -> Any:
        run = self._current()
        call_id = getattr(context, "tool_call_id", None)
        if run is None or call_id is None:
            return await self.tool.on_invoke_tool(context, arguments)
        match = run.take(call_id, arguments)
        if match is not None:
            try:
                return await match.result()
            except GuessFailed:
                pass
        return await self._made(run, call_id, context, arguments)

    async def _made(self, run: CallsOfRun, call_id: str, context: Any, arguments: str) -> Any:
        try:
            with failed_mcp_calls() as failed:
                result = await self._function(run, call_id)(context, arguments)
        except Exception as error:
            run.raised(call_id, error)
            raise
        except BaseException:  # cancelled, as by the tool's timeout
            run.failed(call_id)
            raise
        if failed or getattr(context, _FAILED_BY_DEFAULT, False):
            run.failed(call_id)
        return result

    def _function(self, run: CallsOfRun, call_id: str) -> Callable[[Any, str], Awaitable[Any]]:
        """Return the tool's function; one that reports exceptions of which the tool makes texts."""
        text_of = self.tool._failure_error_function
        if text_of is None:
            return self.tool.on_invoke_tool  # type: ignore[no-any-return]

        def failed(context: Any, error: Exception) -> Any:
            run.failed(call_id)
            return text_of(context, error)

        reporting = tools.set_function_tool_failure_error_function(copy.copy(self.tool), failed)
        return reporting.on_invoke_tool  # type: ignore[no-any-return]
