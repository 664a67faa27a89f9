"""Attributes of OTLP JSON as Python values: each value is wrapped in an object that names its type.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_MOST_LEVELS: Final = 32
_MOST_DIGITS: Final = 4_000
"""Python converts texts of up to 4,300 digits."""
_DIGITS: Final = re.compile("-?[0-9]+")
_INTEGERS: Final = frozenset(("intValue", "int_value"))
_LISTS: Final = frozenset(("arrayValue", "array_value"))
_OBJECTS: Final = frozenset(("kvlistValue", "kvlist_value"))
_SINGLE: Final = frozenset(
    ("stringValue", "boolValue", "doubleValue", "bytesValue", "string_value", "bool_value",
     "double_value", "bytes_value")
)  # fmt: skip


def attribute_value(value: Any, level: int = 0) -> Any:
    """Return the value that an AnyValue holds; anything else is returned as it is.

    An empty AnyValue is null. What is nested more than 32 levels deep is null too.
    """
    if not isinstance(value, Mapping):
        return value
    if not value or level > _MOST_LEVELS:
        return None
    if len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind in _INTEGERS:  # 64-bit integers are texts in JSON
        is_number = isinstance(inner, str) and _DIGITS.fullmatch(inner)
        return int(inner) if is_number and len(inner) <= _MOST_DIGITS else inner
    if kind in _LISTS:
        values = inner.get("values", []) if isinstance(inner, Mapping) else inner
        if not isinstance(values, list):
            return inner
        return [attribute_value(each, level + 1) for each in values]
    if kind in _OBJECTS:
        pairs = inner.get("values", []) if isinstance(inner, Mapping) else inner
        if not isinstance(pairs, list):
            return inner
        return attribute_pairs(pairs, level + 1)
    return inner if kind in _SINGLE else value


def attribute_pairs(pairs: list[Any], level: int = 0) -> dict[str, Any]:
    """Return the values of a list of {key, value} by key; what has no key is left out."""
    return {
        str(each["key"]): attribute_value(each.get("value"), level)
        for each in pairs
        if isinstance(each, Mapping) and each.get("key") is not None
    }
