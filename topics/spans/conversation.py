"""Messages of users and agents, and the calls that a model answered with, from model spans.

Messages are recorded as JSON (`gen_ai.input.messages`, Vercel AI, LangChain), or as one attribute a
message (OpenInference, OpenLLMetry before the conventions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from topics.spans.content import NamedCall, named_call
from topics.spans.unwrapping import json_or_text

LONGEST_MESSAGE: Final = 16_384
"""Characters of a message that are kept."""
MOST_MESSAGES: Final = 1_000
"""Messages of one span that are read: the latest."""
_INPUTS: Final = (
    "gen_ai.input.messages", "ai.prompt.messages", "langfuse.observation.input", "gen_ai.prompt",
    "lmnr.span.input", "gcp.vertex.agent.llm_request",
)  # fmt: skip
_OUTPUTS: Final = (
    "gen_ai.output.messages", "langfuse.observation.output", "gen_ai.completion",
    "lmnr.span.output", "gcp.vertex.agent.llm_response",
)  # fmt: skip
_FLAT: Final = {
    "llm.input_messages.": False, "gen_ai.prompt.": False,
    "llm.output_messages.": True, "gen_ai.completion.": True,
}  # fmt: skip
"""Prefixes of attributes that are one message each, and whether it is the model's answer."""
_HOLDERS: Final = ("messages", "generations", "message", "contents")
"""Keys that hold messages."""
_FIELD: Final = re.compile(r"(\d{1,6})\.(?:message\.)?(.+)")
_CALL_FIELD: Final = re.compile(r"tool_calls\.(\d{1,4})\.(?:tool_call\.)?(?:function\.)?(\w+)")
_CALL_PARTS: Final = ("tool_call", "tool_use", "tool-call")
_ROLES: Final = {
    "user": "user", "human": "user", "HumanMessage": "user",
    "assistant": "assistant", "ai": "assistant", "model": "assistant", "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
}  # fmt: skip


class Message(NamedTuple):
    """A message that is not empty. `role`: user or assistant."""

    role: str
    text: str


class ModelCall(NamedTuple):
    """The messages that a model was given, and the messages and calls that it answered with."""

    given: list[Message]
    answered: list[Message]
    calls: list[NamedCall]


def model_call(attributes: Mapping[str, Any]) -> ModelCall:
    """Return the call in the attributes of a model's, or an agent's, span; may be empty."""
    given, answered = _flat(attributes)
    if not given:
        given = _first(attributes, _INPUTS)
    if not answered:
        answered = _first(attributes, _OUTPUTS)
    if not answered and (
        attributes.get("ai.response.toolCalls") or attributes.get("ai.response.text")
    ):
        answered = [{
            "role": "assistant", "content": attributes.get("ai.response.text"),
            "tool_calls": json_or_text(attributes.get("ai.response.toolCalls")),
        }]  # fmt: skip
    return read_messages(given, answered)


def read_messages(given: Any, answered: Any) -> ModelCall:
    """Return the model call of recorded messages: those that it was given, and its answer."""
    before = [message for each in _objects(given) if (message := _message(each)) is not None]
    outputs = list(_objects(answered))
    after = [
        Message("assistant", message.text)
        for each in outputs
        if (message := _message({"role": "assistant", **each})) is not None
    ]
    return ModelCall(before, after, [call for each in outputs for call in _calls(each)])


def _first(attributes: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((attributes[key] for key in names if attributes.get(key) not in (None, "")), None)


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    """Yield message objects, whatever is around them: `messages`, `generations`, lists of lists."""
    found = json_or_text(value)
    waiting, taken = [found], list[Mapping[str, Any]]()
    while waiting and len(taken) < MOST_MESSAGES * 2:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += reversed(each[-MOST_MESSAGES:])
        elif isinstance(each, Mapping):
            inner = next(
                (each[key] for key in _HOLDERS if _holds(each.get(key))),
                # Google's answer has one message in `content`.
                each["content"] if isinstance(each.get("content"), Mapping) else None,
            )
            if inner is not None:
                waiting.append(inner)
            else:
                taken.append(_plain(each))
    return taken[-MOST_MESSAGES:]


def _holds(value: Any) -> bool:
    return isinstance(value, list | dict) and bool(value)


def _plain(each: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without LangChain's wrapping."""
    if each.get("lc") == 1 and isinstance(each.get("kwargs"), Mapping):
        name = each.get("id")
        last = name[-1] if isinstance(name, list) and name else ""
        return {"role": last, **each["kwargs"]}
    if isinstance(each.get("data"), Mapping):
        return {"role": each.get("type"), **each["data"]}
    return each


def _message(each: Mapping[str, Any]) -> Message | None:
    role = _ROLES.get(str(each.get("role") or each.get("type")))
    if role is None:
        return None
    text = _text(each.get("content")) or _text(each.get("parts"))
    return Message(role, text[:LONGEST_MESSAGE]) if text else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        found = json_or_text(content)
        return content if not _is_parts(found) else _text(found)
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type", "text") in ("text", "output_text"):
            text = part.get("content") if "content" in part else part.get("text")
            texts.append(text if isinstance(text, str) else "")
    return "\n".join(each for each in texts if each.strip()).strip()


def _is_parts(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, Mapping) and "type" in each for each in value)
    )


def _calls(each: Mapping[str, Any]) -> Iterable[NamedCall]:
    """Yield the calls of an assistant's message, in its parts, or beside its content."""
    for key in ("tool_calls", "parts", "content"):
        found = json_or_text(each.get(key))
        for part in found if isinstance(found, list) else ():
            if not isinstance(part, Mapping):
                continue
            if key != "tool_calls" and part.get("type") not in (
                "tool_call",
                "tool_use",
                "tool-call",
            ):
                continue
            ids = {"id": part.get("toolCallId"), "name": part.get("toolName")}
            call = named_call({**{k: v for k, v in ids.items() if v}, **part})
            if call is not None:
                yield call


def _flat(attributes: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages that are attributes each, those given and those answered."""
    found: dict[tuple[bool, int], dict[str, Any]] = {}
    for key, value in attributes.items():
        for prefix, is_answer in _FLAT.items():
            if key.startswith(prefix) and (field := _FIELD.fullmatch(key[len(prefix) :])):
                message = found.setdefault((is_answer, int(field[1])), {"tool_calls": {}})
                if call := _CALL_FIELD.fullmatch(field[2]):
                    message["tool_calls"].setdefault(int(call[1]), {})[call[2]] = value
                elif field[2] in ("role", "content"):
                    message[field[2]] = value
                elif field[2].endswith("message_content.text"):
                    message["content"] = f"{message.get('content', '')}{value}"
    messages: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for (is_answer, _), message in sorted(found.items(), key=lambda pair: pair[0]):
        calls = message["tool_calls"]
        message["tool_calls"] = [calls[number] for number in sorted(calls)]
        messages[is_answer].append(message)
    return messages
