"""A quick yes for the events that nearly everybody emits; every doubt is left to `validation`.

`accepts` never says yes to what `validate` refuses (a law in the tests); it says no to much that
`validate` then lets pass. It looks at the encoded event where that is quicker than its tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Annotated, Any, Final, Literal, Required, get_args, get_origin, get_type_hints

from headstart.events import MAX_CLOCK_SKEW_MS, MAX_DEPTH, Event, Range, Text

Accept = Callable[[Any], bool]

_FORBIDDEN = re.compile(r"\^\[\^((?:\\u[0-9a-f]{4})+)\]\*\$")
"""A pattern that only forbids some characters: looking for each is quicker than matching."""
_STRINGS: Final = {str}
_PLAIN: Final = {str, int, bool}


def accepts(event: dict[str, Any], body: bytes, now_ms: int) -> bool:
    """Whether `event`, with `body` as its JSON by orjson, surely keeps the contract.

    orjson itself refuses half surrogate pairs and keys that are no strings. It writes NUL as an
    escape and NaN as null; nesting cannot exceed the number of brackets.
    """
    return (
        b"\\u0000" not in body
        and (b"null" not in body or _is_finite(event))
        and body.count(b"{") + body.count(b"[") <= MAX_DEPTH
        and _ACCEPT_EVENT(event)
        and bool(event["timestamp"] <= now_ms + MAX_CLOCK_SKEW_MS)
    )


def _is_finite(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return isfinite(value)
    if kind is dict:
        return all(map(_is_finite, value.values()))
    if kind is list:
        return all(map(_is_finite, value))
    return value is None or kind in _PLAIN


def _compile(hint: Any) -> Accept:
    origin = get_origin(hint)
    if origin is Required:
        return _compile(get_args(hint)[0])
    if origin is Annotated:
        base, bound = get_args(hint)
        return _text(bound) if isinstance(bound, Text) else _number(base, bound)
    if origin is Literal:
        allowed = frozenset(get_args(hint))
        return lambda value: type(value) is str and value in allowed
    if origin is list:
        return _array(get_args(hint)[0])
    if origin is dict:
        return lambda value: type(value) is dict
    if hasattr(hint, "__required_keys__"):
        return _object(get_type_hints(hint, include_extras=True), hint.__required_keys__)
    known: Mapping[Any, Accept] = {
        str: lambda value: type(value) is str,
        bool: lambda value: value is True or value is False,
        float: lambda value: type(value) is float or type(value) is int,
        Any: lambda _value: True,
    }
    return known[hint]


def _text(bound: Text) -> Accept:
    least, most = bound.min, bound.max
    forbids = bound.pattern and _FORBIDDEN.fullmatch(bound.pattern)
    if forbids:
        first, second = [chr(int(code, 16)) for code in forbids[1].split("\\u")[1:]]
        return lambda value: (
            type(value) is str
            and least <= len(value) <= most
            and first not in value
            and second not in value
        )
    assert bound.pattern is not None
    matches = re.compile(bound.pattern.removeprefix("^").removesuffix("$")).fullmatch
    return lambda value: (
        type(value) is str and least <= len(value) <= most and matches(value) is not None
    )


def _number(base: type, bound: Range) -> Accept:
    least = bound.min
    most = float("inf") if bound.max is None else bound.max
    if base is int:
        return lambda value: type(value) is int and least <= value <= most
    return lambda value: (type(value) is float or type(value) is int) and least <= value <= most


def _array(hint: Any) -> Accept:
    if hint is str:
        return lambda value: type(value) is list and {*map(type, value)} <= _STRINGS
    item = _compile(hint)
    if hint is Any:
        return lambda value: type(value) is list
    return lambda value: type(value) is list and all(map(item, value))


def _object(hints: dict[str, Any], required: frozenset[str]) -> Accept:
    check = {name: _compile(hint) for name, hint in hints.items()}.get

    def accept(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, item in value.items():
            accept_field = check(name)
            if accept_field is None:
                continue
            if item is None:
                if name in required:
                    return False
            elif not accept_field(item):
                return False
        return required <= value.keys()

    return accept


_ACCEPT_EVENT = _compile(Event)
