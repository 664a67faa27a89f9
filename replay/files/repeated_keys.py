"""Finds keys that an object of JSON gives twice; parsers keep the last value without a word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


class RepeatedKeys(dict[str, Any]):
    """An object of JSON that gives `key` more than once; it has the last value of each key."""

    key: str


def marked_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of some pairs, a `RepeatedKeys` if it has one twice: a hook of `json`."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    marked = RepeatedKeys(found)
    marked.key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return marked


def marked(text: str | bytes, document: Any) -> Any:
    """Return the document of a text with its repeated keys marked; unchanged if it has none."""
    found = False

    def hook(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        one = marked_object(pairs)
        found |= isinstance(one, RepeatedKeys)
        return one

    try:
        again = json.loads(text, object_pairs_hook=hook)
    except (ValueError, RecursionError):
        return document
    return again if found else document


def repeated_key(value: Any) -> str | None:
    """Return a key that is given twice anywhere in a marked value; None if there is none."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, RepeatedKeys):
            return each.key
        if isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return None
