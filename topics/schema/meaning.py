"""Compares published values as parsed, not as bytes.

Another version of Headstart may write fields in another order, omit one with its default value, or
add one. None of this is a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from topics.schema.json_schema import PublishedThreshold

_FIELDS: Final = frozenset(PublishedThreshold.__struct_fields__) - {
    "tenant",
    "workflow_type",
    "path",
}
"""Fields of a threshold, except those in its key."""


def same_value(one: Any, other: Any) -> bool:
    """Return whether two parsed values (JSON, MessagePack) are equivalent.

    A field that only one of them has must hold a default: null, false, 0, or empty.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(same_value(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if _is_list(one) and _is_list(other):
        shorter, longer = sorted((one, other), key=len)
        rest = longer[len(shorter) :]
        pairs = zip(shorter, longer, strict=False)
        return all(same_value(*pair) for pair in pairs) and all(map(_is_default, rest))
    if one is None or other is None:
        return _is_default(one) and _is_default(other)
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)


def same_threshold(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two parsed thresholds of one context are equivalent, version included.

    Fields that this version does not know are ignored.
    """
    return all(same_value(one.get(name), other.get(name)) for name in _FIELDS)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_default(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_default, value.values()))
    if _is_list(value):
        return all(map(_is_default, value))
    return not value
