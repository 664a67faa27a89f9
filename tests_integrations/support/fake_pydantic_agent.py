"""An agent of Pydantic AI with a model that answers by a script, and slow tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.pydantic_ai import SpeculationCapability

RAN: list[tuple[str, str]] = []
"""The calls of tools, in the order of their begin."""

GUESS = [("search", {"query": "a"})]


def call(name: str, query: str, call_id: str) -> ToolCallPart:
    return ToolCallPart(name, {"query": query}, tool_call_id=call_id)


def scripted_model(script: Sequence[Any], thinks_s: float = 0.05, before: Any = None) -> Any:
    """Return a model that answers by the number of answers so far: calls, a text, an exception."""

    async def next_of(messages: list[ModelMessage]) -> Any:
        await asyncio.sleep(thinks_s)
        if before is not None:
            await before("model")
        answer = script[sum(isinstance(each, ModelResponse) for each in messages)]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = await next_of(messages)
        return ModelResponse([TextPart(answer)] if isinstance(answer, str) else list(answer))

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        answer = await next_of(messages)
        if isinstance(answer, str):
            for word in answer.split():
                yield f"{word} "
            return
        for place, each in enumerate(answer):
            yield {
                place: DeltaToolCall(
                    each.tool_name, each.args_as_json_str(), tool_call_id=each.tool_call_id
                )
            }

    return FunctionModel(answer, stream_function=stream)


def slow_tool(
    name: str, takes_s: float = 0.03, error: Exception | None = None, **more: Any
) -> Tool[Any]:
    """Return a tool. `error`: what it raises at the end."""

    async def made(query: str) -> str:
        RAN.append((name, query))
        await asyncio.sleep(takes_s)
        if error is not None:
            raise error
        return f"{name} found {query}"

    return Tool(made, name=name, **more)


def speculating(
    events: SpooledEvents, *guesses: Any, received: Any = None
) -> SpeculationCapability:
    script = Script(*(guesses or [GUESS]), received=received)
    return SpeculationCapability(setup=set_up(events, script, read_only=["search", "lookup"]))


def agent_of(capability: Any, script: Sequence[Any], *tools: Any, **more: Any) -> Agent[Any, Any]:
    capabilities = [] if capability is None else [capability]
    capabilities += more.pop("capabilities", [])
    model = scripted_model(script, **more.pop("model", {}))
    given = tools or (slow_tool("search"), slow_tool("lookup"))
    return Agent(model, tools=given, capabilities=capabilities, **more)


def tool_results(messages: Sequence[ModelMessage]) -> list[tuple[str, Any]]:
    """Return the results of tools: the call's id, and the content."""
    found = [part for message in messages for part in message.parts]
    return [
        (part.tool_call_id, part.content)
        for part in found
        if part.part_kind in ("tool-return", "retry-prompt")
    ]
