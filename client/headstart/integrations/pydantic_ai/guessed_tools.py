"""Which of an agent's tools may be guessed, and how a guessed call of one is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pydantic_ai import RunContext
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_ai.usage import RunUsage

GUESS_PREFIX: Final = "headstart-guess-"
"""Begins the call ids of guessed calls; the requested call keeps its own."""
_NAMES: Final = {each.name for each in fields(RunContext)}
_OF_THE_RUN: Final = {
    name: None
    for name in ("tool_manager", "pending_messages", "_event_stream_buffer")
    if name in _NAMES
}
"""Parts of a context through which a call changes its run. A guessed call has none of them."""


class ToolNotGuessable(RuntimeError):
    """A guessed call cannot be made, as the tool has changed since the run began."""


class GuessedResult(NamedTuple):
    """What a guessed call returned. `usage`: what the tool used, as of models."""

    value: object
    usage: RunUsage


def hints(manager: ToolManager[Any]) -> dict[str, object]:
    """Return the hints of each tool that may be guessed, by its name; see `may_be_guessed`."""
    tools = manager.tools or {}
    return {
        name: {"kind": tool.tool_def.kind, "metadata": tool.tool_def.metadata}
        for name, tool in tools.items()
        if may_be_guessed(tool)
    }


def may_be_guessed(tool: ToolsetTool[Any]) -> bool:
    """Return whether a tool is called by the agent itself, at any time, without approval.

    Left out are tools that a person approves or another process runs, `sequential` ones, which run
    alone, ones that are not shown to the model yet, and ones with a validator of their own for
    arguments, which may decide about a call.
    """
    definition = tool.tool_def
    return (
        definition.kind == "function"
        and not definition.sequential
        and not definition.defer_loading
        and tool.args_validator_func is None
    )


async def make_call(
    ctx: RunContext[Any],
    toolset: AbstractToolset[Any],
    name: str,
    arguments: Mapping[str, object],
) -> GuessedResult:
    """Make a guessed call, outside of the run: no hook, event or usage of that shows it.

    Raises `ToolNotGuessable`, `ValidationError`, and what the tool raises.
    """
    manager = ctx.tool_manager
    tool = None if manager is None else (manager.tools or {}).get(name)
    if tool is None or not may_be_guessed(tool):
        raise ToolNotGuessable(f"{name} may not be called on a guess now")
    valid = validated(ctx, tool, arguments)
    usage = RunUsage()
    apart = replace(
        ctx, usage=usage, tool_name=name, tool_call_id=f"{GUESS_PREFIX}{uuid4()}",
        retry=ctx.retries.get(name, 0), max_retries=tool.max_retries, **_OF_THE_RUN,
    )  # fmt: skip
    return GuessedResult(await toolset.call_tool(name, valid, apart, tool), usage)


def validated(
    ctx: RunContext[Any], tool: ToolsetTool[Any], arguments: Mapping[str, object]
) -> dict[str, Any]:
    """Return arguments as the tool takes them. Raises `ValidationError`."""
    given = json.dumps(dict(arguments))
    valid: dict[str, Any] = tool.args_validator.validate_json(given, context=ctx.validation_context)
    return valid
