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
"""Attributes for the kind of a span, and their value for a tool's call, in lower case."""
_MODEL_KINDS: Final = frozenset((
    "chat", "text_completion", "generate_content", "llm", "generation", "model", "chat_model",
    "ai.generatetext.dogenerate", "ai.streamtext.dostream", "ai.generateobject.dogenerate",
    "ai.streamobject.dostream",
))  # fmt: skip
"""Values of the same attributes for a call of a model."""
_NAMES: Final = (
    "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name", "mcp.tool.name",
    "tool_name",
)  # fmt: skip
_CALL_ONLY: Final = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
"""Attributes that only calls have: enough if no attribute has the kind of the span."""
_CALL_IDS: Final = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id", "tool.call_id")
_PREFIXES: Final = (
    "execute_tool", "tools/call", "running tool:", "running tool", "ai.toolCall", "Tool:",
)  # fmt: skip
LOOKED_FOR: Final = (
    *(f"{key}={value}" for key, value in _KINDS.items()), *_CALL_ONLY,
)  # fmt: skip
"""The attributes by which a call is recognised."""
HIT: Final = "headstart.speculation.hit"
"""False on the client's span of a guess that was not the model's call."""
GUESSED: Final = "headstart.speculation.started"
"""True on the client's span of a guessed call."""
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
    """The kind of a span, by its attributes. `tool`: "" of a call whose tool is not named.

    `is_model`: a call of a model; `kind`: the recorded kind of a span that is not a call, "" if it
    has none; `guessed`: the client's span of a guess that was right.
    """

    is_call: bool
    tool: str = ""
    is_step: bool = False
    served: bool = False
    call: str = ""
    merged: bool = False
    is_model: bool = False
    kind: str = ""
    guessed: bool = False


def recognize_span(name: str, attributes: Mapping[str, Any]) -> SpanReading:
    """Return what a span is, by its name and attributes."""
    guessed, hit = attributes.get(GUESSED) in (True, "true"), attributes.get(HIT)
    if hit in (False, "false") or (guessed and hit not in (True, "true")):
        return SpanReading(is_call=False, kind="missed guess")  # the model did not make this call
    kinds = {key: _word(attributes[key]) for key in _KINDS if attributes.get(key) not in (None, "")}
    calls = [key for key, kind in kinds.items() if _is_call(key, kind)]
    kind = next(iter(kinds.values()), "")
    if "mcp.method.name" in kinds and "mcp.method.name" not in calls:
        # Another method of a tool server: initialize, tools/list.
        return SpanReading(is_call=False, kind=kind)
    if not calls and (kinds or not _is_named_as_call(name, attributes)):
        is_model = any(each.partition(" ")[0] in _MODEL_KINDS for each in kinds.values())
        is_model = is_model or attributes.get("llm.request.type") in ("chat", "completion")
        return SpanReading(is_call=False, is_step=bool(kinds), is_model=is_model, kind=kind)
    named = next((t for key in _NAMES if (t := _text(attributes.get(key)))), "")
    tool = named or tool_named_by(name)
    call = next((t for key in _CALL_IDS if (t := _identifier(attributes.get(key)))), "")
    served = kinds.get("mcp.method.name") == "tools/call"
    merged = tool.startswith(_MERGED) or name.endswith("(merged)")
    return SpanReading(True, tool, False, served, call, merged, guessed=guessed)


def model_of(attributes: Mapping[str, Any]) -> str:
    """Return the model that a span names, "" where it names none."""
    return next((t for key in _MODELS if (t := _text(attributes.get(key)))), "")


def conversation_of(attributes: Mapping[str, Any]) -> str:
    """Return the conversation that a span names, "" if it names none."""
    found = next((t for key in _CONVERSATIONS if (t := _identifier(attributes.get(key)))), "")
    if not found and any(key in attributes for key in _SESSIONS_OF):
        return _identifier(attributes.get("session.id"))  # elsewhere that may be a browser's
    return found


def user_of(attributes: Mapping[str, Any]) -> str:
    """Return the user that a span names, "" if it names none."""
    return next((t for key in _USERS if (t := _identifier(attributes.get(key)))), "")


def _is_call(key: str, kind: str) -> bool:
    # The AI SDK adds the function's id: "ai.toolCall my-agent".
    return kind == _KINDS[key] or (
        key == "operation.name" and kind.partition(" ")[0] == _KINDS[key]
    )


def _is_named_as_call(name: str, attributes: Mapping[str, Any]) -> bool:
    return name.startswith("execute_tool") or any(_text(attributes.get(key)) for key in _CALL_ONLY)


def tool_named_by(name: str) -> str:
    """Return the tool that a span's name names: `execute_tool search`, `search.tool`."""
    for prefix in _PREFIXES:
        rest = name.removeprefix(prefix)
        # A tool may be named execute_tools: a word ends where the prefix does.
        if rest != name and (not rest or not (rest[0].isalnum() or rest[0] == "_")):
            return rest.strip()
    return name.removesuffix(".tool").strip()


def _word(value: Any) -> str:
    # MLflow writes its attributes as JSON.
    return _text(value).strip('"').lower()


def _identifier(value: Any) -> str:
    """Return an id as text; databases' ids are recorded as integers."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else _text(value)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
