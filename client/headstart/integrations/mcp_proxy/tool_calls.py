"""Reads `tools/call` requests and their results, as JSON of any protocol."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

CALL: Final = "tools/call"
LIST: Final = "tools/list"
LONGEST_TEXT: Final = 65_536
"""Characters of a result's text that the predictor learns."""
PER_CALL: Final = ("progressToken", "traceparent", "tracestate", "baggage")
"""Keys of `_meta` that differ from call to call, but not what is returned."""
TOOL_USE_ID: Final = "tooluseid"
"""Ends such a key of some clients, in any spelling: `claudecode/toolUseId`."""
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
PROTOCOL: Final = "io.modelcontextprotocol/protocolVersion"
"""Keys of `_meta` in protocol 2026-07-28."""
_PLAIN_CALL: Final = {"name", "arguments", "_meta"}


class GuessedCallError(RuntimeError):
    """The server answered a guessed call with an error, or with no complete result."""


class ToolRequest(NamedTuple):
    """A call of a tool. `plain`: it has nothing but a name, arguments and `_meta`.

    Others continue a call that asked for input, or want a task instead of the result.
    """

    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    plain: bool


def tool_request(params: object) -> ToolRequest | None:
    """Return the call that the parameters of a request describe; None if they are malformed."""
    if not isinstance(params, Mapping):
        return None
    tool, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta")
    arguments = {} if arguments is None else arguments
    meta = {} if meta is None else meta
    if not isinstance(tool, str) or not tool or len(tool) > 256:
        return None
    if not isinstance(arguments, Mapping) or not isinstance(meta, Mapping):
        return None
    return ToolRequest(tool, arguments, meta, params.keys() <= _PLAIN_CALL)


def steady_meta(meta: Mapping[str, Any], ignored: Collection[str] = ()) -> dict[str, Any]:
    """Return the part of `_meta` that may change what a call returns.

    `ignored`: further keys that do not.
    """
    return {
        key: value
        for key, value in meta.items()
        if key not in PER_CALL and key not in ignored and not _names_a_use(key)
    }


@lru_cache(maxsize=256)
def _names_a_use(key: str) -> bool:
    return "".join(filter(str.isalnum, key)).lower().endswith(TOOL_USE_ID)


def guessed_params(
    tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of a guessed call.

    It wants no log messages, and its client can do nothing for it: the server cannot ask the user.
    """
    meta = {key: value for key, value in meta.items() if key != LOG_LEVEL}
    if CAPABILITIES in meta:
        meta[CAPABILITIES] = {}
    params = {"name": tool, "arguments": dict(arguments)}
    return {**params, "_meta": meta} if meta else params


def complete_result(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of a guessed call if it can answer one. Raises `GuessedCallError`."""
    if is_failure(result):
        raise GuessedCallError("the tool has failed")
    if result.get("resultType", "complete") != "complete" or "task" in result:
        raise GuessedCallError("there is no result yet: the server asks for input, or began a task")
    return result


def is_failure(result: Mapping[str, Any]) -> bool:
    """Return whether a result is marked as a failure of the tool."""
    return result.get("isError") is True


def result_text(result: Mapping[str, Any]) -> object:
    """Return what the predictor learns of a result: its structure, else its text, bounded."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    content = result.get("content")
    texts: list[str] = []
    left = LONGEST_TEXT
    for item in content if isinstance(content, list) else ():
        text = item.get("text") if isinstance(item, Mapping) else None
        if isinstance(text, str) and left > 0:
            texts.append(text[:left])
            left -= len(text)
    return _structure_of("\n".join(texts)) if left >= 0 else "\n".join(texts)


def _structure_of(text: str) -> object:
    """Return the JSON that a text is, else the text."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def as_json(message: bytes) -> Any:
    """Return the JSON of a body. Raises `ValueError`."""
    try:
        return orjson.loads(message)
    except orjson.JSONDecodeError:  # integers of more than 64 bits
        return json.loads(message)
