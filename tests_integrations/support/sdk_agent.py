"""An agent of the OpenAI Agents SDK with a model that answers by a script, and slow tools."""

from __future__ import annotations

import asyncio
from typing import Any

from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from agents import Agent, FunctionTool, RunConfig, function_tool

RAN: list[tuple[str, str]] = []
"""The calls of tools, in the order of their begin."""
NO_TRACES = RunConfig(tracing_disabled=True)


def call(name: str, query: str, call_id: str) -> Any:
    return function_call(name, {"query": query}, call_id=call_id)


def scripted(*answers: Any, thinks_s: float = 0.05) -> ScriptedModel:
    """Return a model. `answers`: of each answer its calls, a text, or an exception to raise."""

    async def slowly(each: Any) -> Any:
        await asyncio.sleep(thinks_s)
        if isinstance(each, BaseException):
            raise each
        return [assistant_message(each)] if isinstance(each, str) else each

    return ScriptedModel([ModelStep.respond(lambda _, each=each: slowly(each)) for each in answers])


def slow_tool(
    name: str, takes_s: float = 0.03, error: Exception | None = None, **options: Any
) -> FunctionTool:
    """Return a tool. `error`: what it raises at the end."""

    async def made(query: str) -> str:
        RAN.append((name, query))
        await asyncio.sleep(takes_s)
        if error is not None:
            raise error
        return f"{name} found {query}"

    return function_tool(made, name_override=name, description_override=f"{name}.", **options)


def support_agent(model: Any, *tools: Any, **more: Any) -> Agent[Any]:
    return Agent(name="support", model=model, tools=list(tools), **more)


def tool_results(result: Any) -> list[tuple[str, str]]:
    """Return the results of tools that the model got: the call's id, and the text."""
    items = [each for each in result.to_input_list() if each.get("type") == "function_call_output"]
    return [(each["call_id"], each["output"]) for each in items]
