"""Which of an agent's tools may be guessed, and how a guessed call of one is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import copy_context
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import msg_content_output

_CALL_ID: Final = "headstart-guess"
"""The id of guessed calls; the message for the model gets that of the requested call."""
_OUTSIDE: Final = ("self", "run_manager")
"""Parameters of a tool's function that the graph's state does not fill in."""


class GuessedCallUnusable(RuntimeError):
    """A guessed call returned something else than a message of the tool, such as a `Command`."""


class GuessableTools:
    """Finds the tools whose calls depend on their arguments alone. Remembers what it found."""

    def __init__(self, excluded: Collection[str] = ()) -> None:
        self.excluded = frozenset(excluded)
        self._found: dict[int, tuple[BaseTool, bool]] = {}

    def hints(self, tools: Iterable[object]) -> dict[str, object]:
        """Return the metadata of each tool that may be guessed, by its name.

        Left out are tools with a parameter that the graph fills in, such as `ToolRuntime`,
        `InjectedState` or the config, as its value is not known at the time of a guess.
        """
        return {
            tool.name: {"metadata": tool.metadata, "extras": tool.extras}
            for tool in tools
            if isinstance(tool, BaseTool) and tool.name not in self.excluded and self._fits(tool)
        }

    def _fits(self, tool: BaseTool) -> bool:
        known = self._found.get(id(tool))
        if known is None or known[0] is not tool:
            if len(self._found) >= 1000:
                self._found.clear()
            known = self._found[id(tool)] = tool, not _is_filled_in(tool)
        return known[1]


def _is_filled_in(tool: BaseTool) -> bool:
    """Return whether a parameter of a tool is not one of those that the model gives."""
    try:
        schema = tool.tool_call_schema
        fields = schema if isinstance(schema, dict) else schema.model_json_schema()
        given = {*fields.get("properties", {}), *_OUTSIDE}
        named = {*tool.args, *tool._injected_args_keys}
        for function in _functions(tool):
            parameters = inspect.signature(function).parameters.values()
            named |= {each.name for each in parameters if each.kind not in _VARIADIC}
    except Exception:  # the tool's schema cannot be read
        return True
    return not named <= given


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _functions(tool: BaseTool) -> list[Callable[..., object]]:
    named = [getattr(tool, "func", None), getattr(tool, "coroutine", None)]
    found = [function for function in named if callable(function)]
    return found or [tool._run, tool._arun]


def by_name(tools: Iterable[object]) -> Mapping[str, BaseTool]:
    """Return the tools that run in this process, by name."""
    return {tool.name: tool for tool in tools if isinstance(tool, BaseTool)}


async def make_call(tool: BaseTool, arguments: Mapping[str, object]) -> ToolMessage:
    """Make a guessed call, outside of the graph: its callbacks and streams do not see it.

    Raises `GuessedCallUnusable`, and what the tool raises.
    """
    var_child_runnable_config.set(None)  # of this call's own task
    return _message(await tool.ainvoke(_request(tool, arguments), {"callbacks": []}), tool)


def make_blocking_call(tool: BaseTool, arguments: Mapping[str, object]) -> ToolMessage:
    """Make a guessed call in this thread; see `make_call`."""

    def call() -> object:
        var_child_runnable_config.set(None)
        return tool.invoke(_request(tool, arguments), {"callbacks": []})

    return _message(copy_context().run(call), tool)


def _request(tool: BaseTool, arguments: Mapping[str, object]) -> dict[str, Any]:
    return {"name": tool.name, "args": dict(arguments), "id": _CALL_ID, "type": "tool_call"}


def _message(result: object, tool: BaseTool) -> ToolMessage:
    if not isinstance(result, ToolMessage):
        raise GuessedCallUnusable(f"{tool.name} returned {type(result).__name__}, not a message")
    return result.model_copy(update={"content": msg_content_output(result.content)})
