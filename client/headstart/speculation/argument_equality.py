"""Whether two calls have the same arguments, as JSON.

A wrong "yes" returns the result of another call, so whatever cannot be compared exactly differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableSequence, MutableSet
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID


def same_arguments(one: object, other: object) -> bool:
    """Return whether two calls have the same arguments: as JSON, in any order of keys.

    A string is parsed as JSON, as model APIs give arguments; one that is not JSON, or has a key
    twice, equals the same string only. None and "" are no arguments, as {}. Numbers are compared
    as they are written: 1 and 1.0 differ, 1.1 and 1.10 are equal. NaN equals nothing. An object
    that JSON has no form for equals itself only; a set or another collection that can be changed
    equals nothing, because it may have been changed since the guess.
    """
    return ArgumentKey(one).matches(other)


class ArgumentKey:
    """Arguments in a form that later changes of the arguments do not change, for comparison."""

    def __init__(self, arguments: object) -> None:
        self._form = _comparable(arguments)

    def matches(self, arguments: object) -> bool:
        """Return whether other arguments are the same; see `same_arguments`."""
        return self.is_same_as(ArgumentKey(arguments))

    def is_same_as(self, other: ArgumentKey) -> bool:
        """Return whether another key is of the same arguments."""
        try:
            return self._form is not None and self._form == other._form
        except Exception:  # an object whose comparison fails
            return False


def _comparable(arguments: object) -> object | None:
    try:
        return _parsed(arguments)
    except Exception:  # NaN, a cycle, nesting too deep, a mapping that fails: not comparable
        return None


class _Fraction(Decimal):
    """A number of a JSON text that is not whole, or has an exponent."""


class _Identity:
    """Compares an object by identity, and keeps it alive, so that its id is not reused."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key is given twice")
    return members


_DECODER: Final = json.JSONDecoder(parse_float=_Fraction, object_pairs_hook=_unique)
"""Keeps whole numbers and fractions exact, unlike orjson, which makes floats of them."""


def _parsed(arguments: object) -> object:
    if not isinstance(arguments, str):
        return _canonical({} if arguments is None else arguments)
    text = str.__str__(arguments)
    try:
        parsed = _DECODER.decode(text) if text else None
    except (ValueError, ArithmeticError, RecursionError):  # or a number too long for Python
        return "text", text
    return _canonical({} if parsed is None else parsed)


def _canonical(value: Any) -> object:
    """Return a form that is equal for equal JSON only. Raises `ValueError` for NaN."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Mapping):
        return _members(value.items())
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _members((each.name, getattr(value, each.name)) for each in fields(value))
    return _scalar(value)


def _members(pairs: Iterable[tuple[object, object]]) -> object:
    canonical = [(_canonical(name), _canonical(each)) for name, each in pairs]
    members = dict(canonical)
    if len(members) < len(canonical):
        raise ValueError("two keys have the same JSON form")
    return members


def _scalar(value: Any) -> tuple[str, object]:
    """Return a value with the name of its JSON type; type and value together are compared."""
    if value is None or isinstance(value, bool):
        return "constant", str(value)
    if isinstance(value, str):
        return "string", str.__str__(value)
    if isinstance(value, int):
        return "whole", int(value)
    if isinstance(value, float):
        return _exact("fraction", Decimal(float.__repr__(value)))
    if isinstance(value, Decimal):
        return _exact("fraction" if isinstance(value, _Fraction) else "decimal", value)
    if isinstance(value, UUID):
        return "string", str(value)
    if isinstance(value, date | time):
        return "string", value.isoformat()
    if isinstance(value, MutableSet | MutableSequence):
        raise ValueError("a collection that can be changed, without a JSON form")
    return ("bytes", value) if isinstance(value, bytes) else ("object", _Identity(value))


def _exact(kind: str, value: Decimal) -> tuple[str, object]:
    if value.is_nan():
        raise ValueError("NaN equals nothing")
    return kind, (value.is_signed(), Decimal(value))
