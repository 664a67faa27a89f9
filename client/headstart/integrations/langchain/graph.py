"""`GraphSpeculation`: speculation in a graph with a node for the model and a `ToolNode`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.prebuilt import ToolNode

from headstart.integrations.langchain.conversations import last_answer
from headstart.integrations.langchain.hooks import SpeculationHooks, messages_of
from headstart.integrations.setup import SpeculationSetup


class GraphSpeculation:
    """Wraps the model's node and the tools of a graph.

        speculation = GraphSpeculation(tools, workflow_type="refund", read_only=["search"])
        speculation.add_nodes(graph, call_model)

    which stands for

        graph.add_node("call_model", speculation.model_node(call_model))
        graph.add_node("tools", ToolNode(tools, **speculation.wrappers))

    A graph that pauses between the two, as by `interrupt_before=["tools"]`, lets a person approve
    calls: name their tools in `dangerous`. Arguments: those of `SpeculationSetup`.
    """

    def __init__(
        self, tools: Sequence[object], *, setup: SpeculationSetup | None = None, **arguments: Any
    ) -> None:
        """Use a set-up, or make one of the arguments. Raises `InvalidArgument` for a wrong one."""
        self._tools = tools
        self.hooks = SpeculationHooks(SpeculationSetup.of(setup, arguments))

    def add_nodes(
        self, graph: Any, call_model: Callable[..., Any], *, model: str = "", tools: str = "tools"
    ) -> None:
        """Add the node that calls the model, and a `ToolNode`, to a `StateGraph`.

        Args:
            graph: What is built.
            call_model: A function of the state that returns the model's message.
            model: Name of its node; default: the function's.
            tools: Name of the node of tools.
        """
        name = model or getattr(call_model, "__name__", "model")
        graph.add_node(name, self.model_node(call_model))
        graph.add_node(tools, ToolNode(self._tools, **self.wrappers))

    @property
    def wrappers(self) -> dict[str, Any]:
        """The arguments for `ToolNode`."""
        return {
            "wrap_tool_call": self.hooks.around_blocking_tool,
            "awrap_tool_call": self.hooks.around_tool,
        }

    def model_node(self, node: Callable[..., Any]) -> Callable[..., Any]:
        """Return the node that calls the model, a function of the state, wrapped."""
        if inspect.iscoroutinefunction(node):
            called: Callable[..., Awaitable[Any]] = node

            @wraps(node)
            async def in_loop(state: Any, *more: Any, **named: Any) -> Any:
                return await self.hooks.around_model(
                    messages_of(state),
                    self._tools,
                    lambda: called(state, *more, **named),
                    answer_in,
                )

            return in_loop

        @wraps(node)
        def in_thread(state: Any, *more: Any, **named: Any) -> Any:
            return self.hooks.around_blocking_model(
                messages_of(state), self._tools, lambda: node(state, *more, **named), answer_in
            )

        return in_thread

    async def close(self) -> None:
        """End the runs that are under way, and stop their guessed calls."""
        await self.hooks.close()


def answer_in(update: object) -> AIMessage | None:
    """Return the model's message in the update that a node returned."""
    if isinstance(update, Mapping):
        update = update.get("messages")
    if isinstance(update, Sequence):
        update = last_answer(update)
    return update if isinstance(update, AIMessage) else None
