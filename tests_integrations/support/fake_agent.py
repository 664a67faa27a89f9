"""A LangChain agent with a model that answers by a script, and tools that take a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from scripted import wait_until

RAN: list[tuple[str, str]] = []
"""The calls of tools, in the order of their begin."""


def call(name: str, query: str, call_id: str) -> dict[str, Any]:
    return {"name": name, "args": {"query": query}, "id": call_id, "type": "tool_call"}


class ScriptedModel(BaseChatModel):
    """Answers what the script has for the number of answers that the messages hold."""

    script: list[Any]
    """Of each answer: its calls, a text, or an exception to raise."""
    thinks_s: float = 0.05
    until: Any = None
    """A condition to wait for first, such as that a guess has begun: at most 30 s."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> ScriptedModel:
        return self

    def _answer(self, messages: list[BaseMessage]) -> ChatResult:
        answer = self.script[sum(isinstance(each, AIMessage) for each in messages)]
        if isinstance(answer, BaseException):
            raise answer
        text = answer if isinstance(answer, str) else ""
        calls = [] if isinstance(answer, str) else answer
        message = AIMessage(content=text, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        if self.until is not None:
            wait_until(self.until)
        time.sleep(self.thinks_s)
        return self._answer(messages)

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **more: Any) -> ChatResult:
        await asyncio.sleep(self.thinks_s)
        return self._answer(messages)


def slow_tool(name: str, takes_s: float = 0.03, error: Exception | None = None) -> BaseTool:
    """Return a tool for both forms of agents. `error`: what it raises at the end."""

    def blocking(query: str) -> str:
        RAN.append((name, query))
        time.sleep(takes_s)
        if error is not None:
            raise error
        return f"{name} found {query}"

    async def in_loop(query: str) -> str:
        RAN.append((name, query))
        await asyncio.sleep(takes_s)
        if error is not None:
            raise error
        return f"{name} found {query}"

    made = tool(name, description=f"{name}.")(blocking)
    made.coroutine = in_loop  # type: ignore[attr-defined]
    return made


def asked(text: str = "Where is order 7?") -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def tool_results(state: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the messages of tools: the call's id, the text, and the status."""
    found = [each for each in state["messages"] if isinstance(each, ToolMessage)]
    return [(each.tool_call_id, each.text, each.status) for each in found]
