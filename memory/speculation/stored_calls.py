"""Calls in the form in which episodes keep them. Pure."""

from __future__ import annotations

import orjson

from headstart.prediction.interface import ToolCall
from headstart.speculation.logged_arguments import logged_arguments
from memory.episodes.calls import arguments_text


def stored_call(call: ToolCall) -> ToolCall:
    """Return a call as an episode has it that was made from the events of our client."""
    text = arguments_text(logged_arguments(call.arguments))
    return ToolCall(call.tool, orjson.loads(text))
