"""Recorded values as JSON can hold them: text is repaired, what cannot be stored is refused.

Half of a surrogate pair, which a text cut inside an emoji ends with, becomes U+FFFD. Integers keep
their digits.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import orjson

from headstart.events.exact_json import load_exactly

MOST_LEVELS: Final = 200
"""Levels of nesting that are kept: a run around them still fits into what orjson writes, 254."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class NotStorable(ValueError):
    """A value cannot be stored as JSON; the message has the reason."""


def storable(value: Any, *, numbers_as_text: bool = False) -> Any:
    """Return a value with its texts repaired.

    `numbers_as_text`: numbers that are not finite (as 1e400 is read) become texts, as "Infinity".
    Raises `NotStorable` for nesting of more than `MOST_LEVELS` levels, for such numbers otherwise,
    and for what is no JSON at all.
    """
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return _repaired(value, 0, numbers_as_text)
    # orjson writes null for a number that is not finite.
    if b"null" in encoded or encoded.count(b"[") + encoded.count(b"{") > MOST_LEVELS:
        return _repaired(value, 0, numbers_as_text)
    return value


def repaired_text(text: str) -> str:
    """Return a text with U+FFFD for each half of a surrogate pair."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def may_hold_surrogates(text: str) -> bool:
    """Return whether a JSON text has escapes of surrogates, which its reader may return halved."""
    return _ESCAPED_SURROGATE.search(text) is not None


def read_json(text: str) -> Any:
    """Return the value of a JSON text, its integers exactly and its texts repaired.

    Raises `orjson.JSONDecodeError`.
    """
    try:
        return load_exactly(text)
    except orjson.JSONDecodeError:
        if not may_hold_surrogates(text):
            raise
        try:
            return repaired_texts(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise orjson.JSONDecodeError(str(error), "", 0) from None


def repaired_texts(value: Any) -> Any:
    """Return a value of a JSON reader with its texts and keys repaired, and nothing else changed.

    Raises `RecursionError`.
    """
    if isinstance(value, str):
        return repaired_text(value)
    if isinstance(value, dict):
        return {repaired_text(key): repaired_texts(each) for key, each in value.items()}
    return [repaired_texts(each) for each in value] if isinstance(value, list) else value


def _repaired(value: Any, level: int, as_text: bool) -> Any:
    if level > MOST_LEVELS:
        raise NotStorable(f"are nested more than {MOST_LEVELS} levels deep")
    if isinstance(value, str):
        return repaired_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        if as_text:
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        raise NotStorable("hold a number that JSON does not have")
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            repaired_text(key): _repaired(each, level + 1, as_text) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_repaired(each, level + 1, as_text) for each in value]
    if value is None or isinstance(value, int | float):
        return value
    raise NotStorable("hold a value that JSON does not have")
