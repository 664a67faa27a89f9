"""Canonical JSON of arguments and contexts: equal values have equal texts.

Bounded: what is too deep or too long is replaced by a mark with its hash, so that it still equals
itself and nothing else.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

MAX_DEPTH: Final = 64
"""Twice as deep as an event may be nested."""
MAX_CHARACTERS: Final = 8_192
"""Longest canonical text of the arguments of one call."""
_LOSSY: Final = re.compile(rb"\.0(?:[,\]}]|$)|\d[eE][+-]?\d|\\u0000")
"""Numbers that have another text, and NUL. Found in a string it costs time, and changes nothing."""


def clean_text(text: str) -> str:
    """Return a text that Postgres can store: no NUL, no half of a surrogate pair."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def canonical_json(value: Any, max_characters: int = MAX_CHARACTERS) -> str:
    """Return a JSON value as text: keys sorted, no white space, 1.0 as 1, text cleaned.

    A longer text than `max_characters` becomes `{"$cut":"HASH"}`.
    """
    text = _encoded(value)
    if len(text) <= max_characters:
        return text
    return f'{{"$cut":"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"}}'


def _encoded(value: Any) -> str:
    try:
        raw = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if not _LOSSY.search(raw) and raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
            return raw.decode()
    except TypeError:
        pass  # half of a surrogate pair, an integer beyond 64 bits, or nested too deep
    return orjson.dumps(cleaned(value), option=orjson.OPT_SORT_KEYS).decode()


def cleaned(value: Any, depth: int = 0) -> Any:
    """Return a JSON value without what Postgres or JSON cannot hold.

    Deeper than `MAX_DEPTH` it is cut; numbers that are no JSON (NaN, infinity) become null,
    integers beyond 64 bits texts.
    """
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if depth >= MAX_DEPTH:
        return {"$cut": "depth"}
    if isinstance(value, Mapping):
        return {clean_text(str(key)): cleaned(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each, depth + 1) for each in value]
    return clean_text(str(value))


def _number(value: float) -> float | int | str | None:
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else hex(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
