"""JSON whose integers stay what they are.

orjson reads an integer beyond 64 bits as a float, without an error: as a level of a context it
would name another context.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from headstart.events.schema import InvalidEvent, field_name

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 64) - 1
_LONG: Final = (re.compile("[0-9]{19}"), re.compile(b"[0-9]{19}"))
"""Finds all that may be an integer beyond 64 bits."""


def load_exactly(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises `orjson.JSONDecodeError`."""
    found = orjson.loads(text)
    in_text, in_bytes = _LONG
    if not (in_text.search(text) if isinstance(text, str) else in_bytes.search(text)):
        return found
    try:
        return json.loads(text)
    except RecursionError:  # orjson reads deeper nesting
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from None


def dump_exactly(value: Any) -> bytes:
    """Return a value of `load_exactly` as JSON, in one line."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def is_large(value: object) -> bool:
    """Return whether a value is an integer that events cannot have."""
    return isinstance(value, int) and not _LEAST <= value <= _MOST


def refuse_large_integers(value: object, name: str = "") -> None:
    """Raise `InvalidEvent` naming the first integer beyond 64 bits in an event."""
    if is_large(value):
        raise InvalidEvent(name, "is an integer beyond 64 bits; give it as a string")
    if isinstance(value, Mapping):
        for key, item in value.items():
            refuse_large_integers(item, field_name(name, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_large_integers(item, field_name(name, index))
