"""Reads the inputs of Claude Code's hooks: calls, and results as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.speculation.calls import RequestedCall
from headstart.speculation.guessed_call import marked_as_error


def result_text(response: Any) -> object:
    """Return a tool's response as the model reads it: the text of MCP content, else as it is."""
    blocks = response.get("content") if isinstance(response, Mapping) else response
    if not isinstance(blocks, list) or not blocks or not all(map(_is_text, blocks)):
        return response
    return "\n".join(block["text"] for block in blocks)


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)


def is_error(response: Any) -> bool:
    """Return whether a tool's response is marked as an error."""
    return marked_as_error(response)


def calls_in(batch: Mapping[str, Any]) -> list[RequestedCall]:
    """Return the calls of a `PostToolBatch`, in the order in which the model requested them."""
    return [call_in(each) for each in batch.get("tool_calls") or ()]


def call_in(hook_input: Mapping[str, Any]) -> RequestedCall:
    """Return the call in the input of a tool's hook, as the model requested it."""
    arguments = hook_input.get("tool_input")
    return RequestedCall(
        str(hook_input["tool_use_id"]), str(hook_input["tool_name"]),
        arguments if isinstance(arguments, Mapping) else {},
    )  # fmt: skip


def responses_in(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the responses in a `PostToolBatch`, by the calls' ids."""
    calls = batch.get("tool_calls") or ()
    return {str(each["tool_use_id"]): each.get("tool_response") for each in calls}
