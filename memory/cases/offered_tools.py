"""`OfferedTools`: whether the calls of a past run can be made with the tools offered now. Pure.

A tool that was renamed or whose arguments changed makes every case that calls it wrong at once.
What was stored does not say so; the tools of the agent that asks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from memory.episodes.record import MadeCall

Schema = Mapping[str, Any]
"""JSON schema of a tool's arguments, as model APIs and MCP have it."""
ToolOffer = Iterable[str] | Mapping[str, Schema | None]
"""Names of tools, or tools with the schemas of their arguments; None: not known."""
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,), "boolean": (bool,), "array": (list,), "object": (dict,),
    "null": (type(None),), "number": (int, float), "integer": (int,),
}  # fmt: skip
_MARK: Final = "$"
"""First character of the only key of arguments that are no object, or were too long to be kept."""


class OfferedTools:
    """The tools of the agent that asks.

    Of a schema the names of arguments, those that are required, and the `type`, `enum` and `const`
    of each are compared; nested ones and references are not, and let everything pass.
    """

    def __init__(self, tools: ToolOffer) -> None:
        """Raises `ValueError` for a name that is no text, and for a schema that is no object."""
        self._schemas: dict[str, Schema | None] = (
            dict(tools) if isinstance(tools, Mapping) else dict.fromkeys(tools)
        )
        for name, schema in self._schemas.items():
            if not isinstance(name, str) or not (schema is None or isinstance(schema, Mapping)):
                raise ValueError(f"tools: {name!r:.100} needs a JSON schema or None, and a name")

    def misfit(self, calls: Iterable[MadeCall]) -> str:
        """Return why a run's calls cannot be made now; "" if they can.

        A run of which no call has arguments was logged without them: only its tools are compared.
        """
        made = list(calls)
        logged = any(call.arguments != "{}" for call in made)
        for call in made:
            if call.tool not in self._schemas:
                return f"{call.tool} is not offered"
            schema = self._schemas[call.tool]
            if logged and schema is not None and (why := _misfit(schema, call.arguments)):
                return f"{call.tool}: {why}"
        return ""


def _misfit(schema: Schema, text: str) -> str:
    arguments = orjson.loads(text)
    if len(arguments) == 1 and next(iter(arguments)).startswith(_MARK):
        return ""
    for name in _list(schema.get("required")):
        if name not in arguments:
            return f"argument {name!r} is required"
    named = schema.get("properties")
    properties: Mapping[str, Any] = named if isinstance(named, Mapping) else {}
    for name, value in arguments.items():
        if name not in properties:
            if _is_closed(schema):
                return f"argument {name!r} is not known"
        elif not _fits(properties[name], value):
            return f"argument {name!r} has another type or value"
    return ""


def _is_closed(schema: Schema) -> bool:
    """Return whether an argument without a name in the schema is stale.

    The default of JSON schema lets it pass; a tool that does not name it does not read it either.
    """
    more = schema.get("additionalProperties", False)
    open_keys = ("patternProperties", "allOf", "anyOf", "oneOf", "$ref")
    return more is False and not any(key in schema for key in open_keys)


def _fits(schema: Any, value: Any) -> bool:
    if not isinstance(schema, Mapping):
        return schema is not False
    if "enum" in schema and value not in _list(schema["enum"]):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else _list(kinds)
    return not wanted or any(_is_of(kind, value) for kind in wanted)


def _is_of(kind: Any, value: Any) -> bool:
    if kind in ("number", "integer") and isinstance(value, bool):
        return False
    types = _TYPES.get(kind) if isinstance(kind, str) else None
    return types is None or isinstance(value, types)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
