"""Which spans are calls of tools, by the attributes of each instrumentation.

OpenTelemetry's GenAI and MCP conventions (also Google ADK, Strands, AutoGen, pydantic-ai, the AI
SDK 7), OpenInference (also smolagents, CrewAI), OpenLLMetry by Traceloop, Laminar, Langfuse,
LangSmith, LangWatch, MLflow and the Vercel AI SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_KINDS: Final[Mapping[str, str]] = {
    "gen_ai.operation.name": "execute_tool",
    "openinference.span.kind": "tool",
    "traceloop.span.kind": "tool",
    "lmnr.span.type": "tool",
    "langfuse.observation.type": "tool",
    "langsmith.span.kind": "tool",
    "langwatch.span.type": "tool",
    "mlflow.spanType": "tool",
    "gen_ai.span.kind": "tool",
    "genkit:metadata:subtype": "tool",
    "ai.operationId": "ai.toolcall",
    "operation.name": "ai.toolcall",
    "mcp.method.name": "tools/call",
}
"""Attributes that say what a span is, and the value of a tool's call, in lower case."""
_NAMES: Final = (
    "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name", "mcp.tool.name",
    "tool_name",
)  # fmt: skip
_TOLD_BY_NAME: Final = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
"""Attributes that only calls have: enough where nothing says what a span is."""
_CALL_IDS: Final = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id", "tool.call_id")
_PREFIXES: Final = (
    "execute_tool", "tools/call", "running tool:", "running tool", "ai.toolCall", "Tool:",
)  # fmt: skip
_MERGED: Final = "(merged"
"""Google ADK's span over several calls that ran side by side, each of which has its own."""
_MODELS: Final = (
    "gen_ai.request.model", "llm.model_name", "ai.model.id", "gen_ai.response.model",
)  # fmt: skip
_CONVERSATIONS: Final = (
    "gen_ai.conversation.id", "langfuse.session.id", "lmnr.association.properties.session_id",
)  # fmt: skip
_USERS: Final = (
    "user.id", "enduser.id", "langfuse.user.id", "lmnr.association.properties.user_id",
    "traceloop.association.properties.user_id", "langwatch.user.id",
)  # fmt: skip
_SESSIONS_OF: Final = ("openinference.span.kind", "langfuse.observation.type")


class SpanReading(NamedTuple):
    """What attributes tell of a span. `tool`: "" of a call whose tool is not named."""

    is_call: bool
    tool: str = ""
    is_step: bool = False
    served: bool = False
    call: str = ""
    merged: bool = False


def told_by(name: str, said: Mapping[str, Any]) -> SpanReading:
    """Return what a span is, by its name and attributes."""
    kinds = {key: _word(said[key]) for key in _KINDS if said.get(key) not in (None, "")}
    calls = [key for key, kind in kinds.items() if _is_call(key, kind)]
    if "mcp.method.name" in kinds and "mcp.method.name" not in calls:
        return SpanReading(is_call=False)  # another method of a tool server: initialize, tools/list
    if not calls and (kinds or not _told_by_name(name, said)):
        return SpanReading(is_call=False, is_step=bool(kinds))
    tool = next((t for key in _NAMES if (t := _text(said.get(key)))), "") or _within(name)
    call = next((t for key in _CALL_IDS if (t := _text(said.get(key)))), "")
    served = kinds.get("mcp.method.name") == "tools/call"
    merged = tool.startswith(_MERGED) or name.endswith("(merged)")
    return SpanReading(True, tool, False, served, call, merged)


def model_of(said: Mapping[str, Any]) -> str:
    """Return the model that a span names, "" where it names none."""
    return next((t for key in _MODELS if (t := _text(said.get(key)))), "")


def conversation_of(said: Mapping[str, Any]) -> str:
    """Return the conversation that a span says it belongs to, "" where it says none."""
    found = next((t for key in _CONVERSATIONS if (t := _text(said.get(key)))), "")
    if not found and any(key in said for key in _SESSIONS_OF):
        return _text(said.get("session.id"))  # elsewhere that may be a browser's
    return found


def user_of(said: Mapping[str, Any]) -> str:
    """Return the user that a span says it is of, "" where it says none."""
    return next((t for key in _USERS if (t := _text(said.get(key)))), "")


def _is_call(key: str, kind: str) -> bool:
    # The AI SDK adds the function's id: "ai.toolCall my-agent".
    return kind == _KINDS[key] or (
        key == "operation.name" and kind.partition(" ")[0] == _KINDS[key]
    )


def _told_by_name(name: str, said: Mapping[str, Any]) -> bool:
    return name.startswith("execute_tool") or any(_text(said.get(key)) for key in _TOLD_BY_NAME)


def _within(name: str) -> str:
    """Return the tool that a span's name names: `execute_tool search`, `search.tool`."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix).strip()
    return name.removesuffix(".tool").strip()


def _word(value: Any) -> str:
    # MLflow writes its attributes as JSON.
    return _text(value).strip('"').lower()


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
