"""Takes arguments and results out of what instrumentations put around them.

JSON within texts, Python literals within JSON (LangChain's callbacks), LangChain's ToolMessage in
its three forms, and the results of MCP. Everything read here comes from outside, so literals are
parsed up to `LONGEST_LITERAL` characters, and results are cut to a size.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from headstart.events.exact_json import dump_exactly
from topics.spans.storable import read_json, storable

LONGEST_LITERAL: Final = 65_536
"""Characters of a Python literal that are parsed; a longer one stays a text."""
LONGEST_RESULT: Final = 65_536
"""Characters of a result, as JSON, that are kept."""
_MOST_LEVELS: Final = 24
_TOOL_MESSAGE: Final = re.compile(
    r"""content=(?P<content>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r""".{0,2000}?tool_call_id=(?P<id>'[^'\\]{1,256}'|"[^"\\]{1,256}")""",
    re.DOTALL,
)
"""How Python prints a ToolMessage, which is what LangChain gives to callbacks as text."""


class ToolMessage(NamedTuple):
    """A result without what was around it. `call`: the model's id of the call, "" if unknown."""

    content: Any
    failed: bool = False
    call: str = ""


class Cut(NamedTuple):
    """A value of bounded size. `characters`: of the whole value as JSON, or of the whole text."""

    value: Any
    characters: int
    is_cut: bool


def json_or_text(value: Any) -> Any:
    """Return the object or list that a text holds as JSON, else the value itself."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return read_json(value)
        except orjson.JSONDecodeError:
            return value
    return value


def literal(text: str) -> Any:
    """Return the value of a Python literal, None for anything else; nothing is executed."""
    if len(text) > LONGEST_LITERAL:
        return None
    try:
        return storable(ast.literal_eval(text.strip()))  # a set, or bytes: no JSON
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def json_object(value: Any) -> dict[str, Any] | None:
    """Return the object that a value is, or holds as JSON or as a Python literal; else None."""
    found = json_or_text(value)
    if isinstance(found, str) and found.lstrip()[:1] == "{":
        found = literal(found)
    if not isinstance(found, dict):
        return None
    return found if all(isinstance(key, str) for key in found) else None


def unwrapped_arguments(value: Any, wrapper: str = "") -> dict[str, Any] | None:
    """Return the arguments of a call, None where they are not a JSON object.

    `wrapper`: the key under which LangChain's callbacks have them as a Python literal:
    `{"input_str": "{'query': 'a'}"}` of OpenLLMetry, `{"input": "{'query': 'a'}"}` of LangSmith.
    """
    found = json_object(value)
    if found is None or not wrapper or wrapper not in found:
        return found
    if isinstance(found.get("inputs"), dict):
        return json_object(found["inputs"])
    if (inner := json_object(found[wrapper])) is not None:
        return inner
    # One bare argument, whose name is not recorded; or an argument that has the wrapper's name.
    return None if found.keys() - {wrapper} <= {"tags", "metadata", "kwargs"} else found


def bare_argument(value: Any, wrapper: str = "") -> str | None:
    """Return the value of the one argument that is recorded without its name, else None."""
    found = json_or_text(value)
    if wrapper and isinstance(found, dict):
        found = found.get(wrapper)
    return found if isinstance(found, str) and found else None


def unwrapped_result(value: Any, *, wrapped: bool = False) -> ToolMessage:
    """Return a result without LangChain's or MCP's wrapping.

    `wrapped`: also without the object with the key `output` that OpenLLMetry and LangSmith add.
    """
    found, failed, call = json_or_text(value), False, ""
    for _ in range(_MOST_LEVELS):
        inner = _inside(found, wrapped)
        if inner is None:
            break
        wrapped = False
        failed, call = failed or inner.failed, call or inner.call
        found = json_or_text(inner.content)
    return ToolMessage(found, failed, call)


def _inside(value: Any, wrapped: bool) -> ToolMessage | None:
    if isinstance(value, str):
        return _printed(value)
    if not isinstance(value, Mapping):
        return None
    if wrapped and "output" in value and value.keys() <= {"output", "kwargs"}:
        return ToolMessage(value["output"])
    if value.keys() == {"id", "name", "response"}:  # Google's function response
        call = value["id"]
        return ToolMessage(value["response"], call=call if isinstance(call, str) else "")
    for fields in (value.get("kwargs") if value.get("lc") == 1 else None, value.get("data"), value):
        if isinstance(fields, Mapping) and {"content", "tool_call_id"} <= fields.keys():
            return _message(fields)
    if isinstance(value.get("content"), list) and value.keys() & {"isError", "structuredContent"}:
        structured = value.get("structuredContent")
        content = _joined(value["content"]) if structured is None else structured
        return ToolMessage(content, value.get("isError") is True)
    return None


def _message(fields: Mapping[str, Any]) -> ToolMessage:
    call = fields.get("tool_call_id")
    content = fields["content"]
    return ToolMessage(
        _joined(content) if isinstance(content, list) else content,
        fields.get("status") == "error",
        call if isinstance(call, str) else "",
    )


def _joined(parts: list[Any]) -> Any:
    """Return the text of content that comes in parts; the parts where they are not all texts."""
    texts = [
        each if isinstance(each, str) else each.get("text") if isinstance(each, Mapping) else None
        for each in parts
    ]
    known = [text for text in texts if isinstance(text, str)]
    return "\n".join(known) if parts and len(known) == len(parts) else parts


def _printed(text: str) -> ToolMessage | None:
    if not text.startswith("content="):
        return None
    found = _TOOL_MESSAGE.match(text[:LONGEST_LITERAL])
    if found is None:
        return None
    return ToolMessage(
        literal(found["content"]), "status='error'" in text[found.end() :], found["id"][1:-1]
    )


def cut(value: Any, longest: int = LONGEST_RESULT) -> Cut:
    """Return a value cut to about `longest` characters of JSON, which is still JSON.

    A text that is cut ends with the number of characters left out; of lists and objects the first
    elements are kept. `value`: of `storable`.
    """
    if isinstance(value, str):
        return Cut(_cut_text(value, longest), len(value), len(value) > longest)
    size = len(dump_exactly(value))
    if size <= longest:
        return Cut(value, size, is_cut=False)
    return Cut(_Budget(longest).kept(value, 0), size, is_cut=True)


def _cut_text(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}... ({len(text) - longest} characters left out)"


class _Budget:
    """The characters that are left for a value."""

    def __init__(self, left: int) -> None:
        self.left = left

    def kept(self, value: Any, level: int) -> Any:
        """Return what of a value fits, depth first."""
        self.left -= 2
        if isinstance(value, str):
            found = _cut_text(value, max(self.left, 0))
            self.left -= len(found)
            return found
        if level > _MOST_LEVELS:
            return None
        if isinstance(value, Mapping):
            kept_pairs = {}
            for key, each in value.items():
                if self.left <= 0:
                    break
                self.left -= len(str(key))
                kept_pairs[key] = self.kept(each, level + 1)
            return kept_pairs
        if isinstance(value, list):
            kept_items = []
            for each in value:
                if self.left <= 0:
                    break
                kept_items.append(self.kept(each, level + 1))
            return kept_items
        self.left -= 8
        return value
