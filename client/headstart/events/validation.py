"""Validates an event against the types of `headstart.events.schema`, naming the invalid field.

The checks are built once from the annotated types, so these stay the only contract.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Required, get_args, get_origin, get_type_hints

from headstart.events.schema import (
    FIRST_MS,
    LAST_MS,
    MAX_CLOCK_SKEW_MS,
    MAX_DEPTH,
    START_NEEDS,
    Bounds,
    Event,
    InvalidEvent,
    Text,
    UnixMs,
    field_name,
)

Check = Callable[[Any, str], None]

UNITS = {
    "seconds": (FIRST_MS // 1000, LAST_MS // 1000),
    "milliseconds": (FIRST_MS, LAST_MS),
    "microseconds": (FIRST_MS * 1000, LAST_MS * 1000),
    "nanoseconds": (FIRST_MS * 1_000_000, LAST_MS * 1_000_000),
}
"""The first and last timestamp in each unit. They overlap: the first one that fits is named."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def validate(event: Any, *, now_ms: int | None = None) -> None:
    """Raise `InvalidEvent` if `event` breaks the contract.

    `now_ms` (Unix ms): refuse a timestamp more than an hour ahead of it. A `speculation_start`
    needs a `task_id` and a `confidence`: without them it has no outcome.
    """
    check_fields(event)
    if event["event_type"] == "speculation_start":
        for name, reason in START_NEEDS.items():
            if event.get(name) is None:
                raise InvalidEvent(name, reason)
    if now_ms is not None:
        _check_time(event["timestamp"], now_ms)


def check_fields(event: Any) -> None:
    """Raise `InvalidEvent` if a field breaks the contract, whatever the other fields are.

    The service's decoder refuses the same events: they cannot be stored.
    """
    if not isinstance(event, Mapping):
        raise InvalidEvent("", f"an event is a JSON object, not {_kind(event)}")
    _check_unit(event.get("timestamp"))
    _CHECK_EVENT(event, "")
    _check_tree(event, "", 1)


def _check_time(timestamp: int, now_ms: int) -> None:
    """Refuse a time further ahead than `MAX_CLOCK_SKEW_MS`."""
    if timestamp > now_ms + MAX_CLOCK_SKEW_MS:
        ahead = (timestamp - now_ms) / 3_600_000
        raise InvalidEvent("timestamp", f"is {ahead:.1f} hours ahead of the clock; {_WANTED}")


_WANTED: Final = "give Unix milliseconds, such as int(time.time() * 1000)"


def _check_unit(timestamp: Any) -> None:
    """Refuse a number that cannot be in Unix milliseconds; other types are checked later."""
    if type(timestamp) not in {int, float} or FIRST_MS <= timestamp <= LAST_MS:
        return
    if (unit := misread_unit(timestamp)) is not None:
        raise InvalidEvent("timestamp", f"{timestamp} reads as {unit}; give Unix milliseconds")
    if type(timestamp) is int:
        raise InvalidEvent(
            "timestamp", "is before the year 2000 or after the year 9999; give Unix milliseconds"
        )


def misread_unit(timestamp: float) -> str | None:
    """Return the unit that a Unix time must be in; None if milliseconds, or no unit, fits."""
    if FIRST_MS <= timestamp <= LAST_MS:
        return None
    return next((unit for unit, (first, last) in UNITS.items() if first <= timestamp <= last), None)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    if value is None:
        return "null"
    if isinstance(value, datetime):
        return "a datetime"
    return names.get(type(value), "a number" if isinstance(value, int | float) else "that")


def _check_tree(value: Any, name: str, depth: int) -> None:
    """Refuse NUL bytes, deep nesting and numbers JSON does not have, in any field."""
    if isinstance(value, str):
        if "\x00" in value:
            raise InvalidEvent(name, "holds a NUL byte, which Postgres cannot store")
        if not value.isascii() and _SURROGATE.search(value):
            raise InvalidEvent(name, "holds half of a surrogate pair, which UTF-8 does not have")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidEvent(name, f"is {value}, which JSON does not have")
    elif isinstance(value, Mapping | list | tuple):
        if depth > MAX_DEPTH:
            raise InvalidEvent(name, f"is nested deeper than {MAX_DEPTH} levels")
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            if isinstance(value, Mapping):
                if not isinstance(key, str):
                    raise InvalidEvent(field_name(name, key), "has a key that is no string")
                _check_tree(key, name, depth)
            _check_tree(item, field_name(name, key), depth + 1)


def _compile(hint: Any) -> Check:
    origin = get_origin(hint)
    if origin is Required:
        return _compile(get_args(hint)[0])
    if origin is Annotated:
        base, bound = get_args(hint)
        if hint == UnixMs:
            return _unix_ms
        return _text(bound) if isinstance(bound, Text) else _number(base, bound)
    if origin is Literal:
        return _choice(get_args(hint))
    if origin is list:
        return _array(_compile(get_args(hint)[0]))
    if origin is tuple:
        return _tuple([_compile(item) for item in get_args(hint)])
    if origin is dict:
        return _object({}, frozenset())
    if hasattr(hint, "__required_keys__"):
        fields = get_type_hints(hint, include_extras=True)
        return _object(
            {key: _compile(value) for key, value in fields.items()}, hint.__required_keys__
        )
    return {str: _string, bool: _boolean, float: _number(float, None)}.get(hint, _anything)


def _anything(_value: Any, _name: str) -> None:
    return None


def _string(value: Any, name: str) -> None:
    if not isinstance(value, str):
        fix = f"; give str({value})" if type(value) is int and abs(value) < 1 << 64 else ""
        raise InvalidEvent(name, f"must be a string, not {_kind(value)}{fix}")


def _boolean(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise InvalidEvent(name, f"must be true or false, not {_kind(value)}")


def _text(bound: Text) -> Check:
    # In Python $ also matches before a final newline, unlike in JSON Schema.
    pattern = bound.pattern and bound.pattern.removeprefix("^").removesuffix("$")
    matches = re.compile(pattern).fullmatch if pattern else None

    def check(value: Any, name: str) -> None:
        _string(value, name)
        if not bound.min <= len(value) <= bound.max:
            raise InvalidEvent(
                name, f"must have {bound.min} to {bound.max} characters, not {len(value)}"
            )
        if matches and not matches(value):
            raise InvalidEvent(name, "holds characters that its format does not allow")

    return check


def _number(base: type, bound: Bounds | None) -> Check:
    def check(value: Any, name: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidEvent(name, f"must be a number, not {_kind(value)}")
        if base is int and not isinstance(value, int):
            raise InvalidEvent(name, f"must be a whole number, not {value}")
        if bound and not (value >= bound.min and (bound.max is None or value <= bound.max)):
            top = "" if bound.max is None else f" and at most {bound.max:g}"
            raise InvalidEvent(name, f"must be at least {bound.min:g}{top}, not {value}")

    return check


def _unix_ms(value: Any, name: str) -> None:
    """Check a timestamp; name the wanted unit in the error."""
    try:
        _UNIX_MS(value, name)
    except InvalidEvent as error:
        if isinstance(value, datetime):
            wanted = "give Unix milliseconds, such as int(moment.timestamp() * 1000)"
        else:
            wanted = _WANTED
        raise InvalidEvent(name, f"{error.reason}; {wanted}") from None


_UNIX_MS: Final = _number(*get_args(UnixMs))


def _choice(allowed: tuple[str, ...]) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise InvalidEvent(name, f"must be one of {', '.join(allowed)}, not {value!r:.64}")

    return check


def _array(item: Check) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, list):
            raise InvalidEvent(name, f"must be an array, not {_kind(value)}")
        for index, element in enumerate(value):
            item(element, field_name(name, index))

    return check


def _tuple(items: Sequence[Check]) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise InvalidEvent(name, f"must be an array of {len(items)}")
        for index, (item, element) in enumerate(zip(items, value, strict=True)):
            item(element, field_name(name, index))

    return check


def _object(fields: dict[str, Check], required: frozenset[str]) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, Mapping):
            raise InvalidEvent(name, f"must be an object, not {_kind(value)}")
        for key, check_field in fields.items():
            item = value.get(key)
            if item is not None:
                check_field(item, field_name(name, key))
            elif key in required:
                raise InvalidEvent(field_name(name, key), "is missing")

    return check


_CHECK_EVENT = _compile(Event)
