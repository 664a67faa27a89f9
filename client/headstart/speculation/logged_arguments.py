"""Arguments of calls as events hold them, in `data.arguments`: whole, or a hash of long ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import orjson

MAX_CHARACTERS: Final = 8_192
"""Longest JSON text of one call's arguments; of longer ones the hash is logged."""
MAX_NESTING: Final = 24
"""Most brackets of arguments with as many: deeper ones might exceed an event's 32 levels."""
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def logged_arguments(arguments: object) -> object:
    """Return arguments as they are logged; None for None. Never raises, and returns a copy.

    A JSON text, as model APIs give, is parsed; another text is kept. What has more than 8,192
    characters as JSON, might be nested too deep, or is no JSON, becomes `{"$cut": HASH}`: equal
    arguments have equal hashes, and the service's episodes have the same ones.
    """
    if arguments is None:
        return None
    try:
        return _bounded(_parsed(arguments) if isinstance(arguments, str) else arguments)
    except Exception:  # objects without a JSON form, or that fail when they are read
        return _cut(_described(arguments))


def _parsed(text: str) -> object:
    if not text:
        return {}
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _bounded(arguments: object) -> object:
    if isinstance(arguments, Mapping) and not isinstance(arguments, dict):
        arguments = dict(arguments)
    raw = orjson.dumps(arguments, option=_OPTIONS)
    nested = raw.count(b"{") + raw.count(b"[") > MAX_NESTING and _depth(arguments) > MAX_NESTING
    if nested or (len(raw) > MAX_CHARACTERS and len(raw.decode()) > MAX_CHARACTERS):
        return _cut(raw)
    return orjson.loads(raw)


def _depth(value: object) -> int:
    """Return how deep a JSON value is nested."""
    if isinstance(value, Mapping):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list | tuple):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _described(arguments: object) -> bytes:
    try:
        return repr(arguments).encode("utf-8", "replace")
    except Exception:  # an object whose repr fails
        return type(arguments).__qualname__.encode("utf-8", "replace")


def _cut(raw: bytes) -> dict[str, str]:
    return {"$cut": hashlib.blake2b(raw, digest_size=16).hexdigest()}
