"""Reads a run's messages: texts of the user, the requested calls, the results of tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.tool_manager import ToolManager

from headstart.speculation.calls import RequestedCall


def _since_answer(messages: Sequence[ModelMessage]) -> list[ModelRequest]:
    """Return the requests after the model's last response."""
    found: list[ModelRequest] = []
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            break
        found.append(message)
    return found[::-1]


def new_user_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the texts of the user after the model's last response."""
    return [
        part.content if isinstance(part.content, str) else _text_of(part.content)
        for message in _since_answer(messages)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def _text_of(content: Sequence[object]) -> str:
    return "\n".join(each for each in content if isinstance(each, str))


def new_tool_results(messages: Sequence[ModelMessage]) -> Iterator[tuple[str, object]]:
    """Return the call ids and contents of tools' results after the model's last response."""
    for message in _since_answer(messages):
        for part in message.parts:
            call_id = getattr(part, "tool_call_id", None)
            if isinstance(call_id, str):
                yield call_id, getattr(part, "content", None)


def requested_calls(
    response: ModelResponse, manager: ToolManager[Any] | None
) -> list[RequestedCall]:
    """Return the calls of a response, but those of output tools, which end the run."""
    return [
        RequestedCall(part.tool_call_id, part.tool_name, part.args or {})
        for part in response.parts
        if isinstance(part, ToolCallPart) and not _is_output(part, manager)
    ]


def _is_output(part: ToolCallPart, manager: ToolManager[Any] | None) -> bool:
    tool = None if manager is None else manager.get_tool_def(part.tool_name)
    return tool is not None and tool.kind == "output"


def text_in(response: ModelResponse) -> str:
    """Return the text of a response."""
    return "\n".join(part.content for part in response.parts if isinstance(part, TextPart))
