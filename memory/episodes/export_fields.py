"""Checks the fields of an exported episode, which anybody may have edited. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from memory.episodes.canonical import clean_text, cleaned
from memory.episodes.hashes import id_of_text
from memory.episodes.record import MadeCall
from memory.episodes.reward import REWARDS

LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


class BadEpisodeField(ValueError):
    """A field that no episode can have; the message names it and what it must be."""


def checked_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of a record as an `Episode` has them. Raises `BadEpisodeField`."""
    found = {}
    for name, (check, must_be) in _FIELDS.items():
        if name not in record:
            raise BadEpisodeField(f"{name} is missing")
        try:
            found[name] = check(record[name])
        except (TypeError, ValueError) as error:
            raise BadEpisodeField(f"{name} must be {must_be}") from error
    if found["started"] > found["ended"]:
        raise BadEpisodeField("ended must not be before started")
    return found


def _is(right: bool) -> None:
    if not right:
        raise ValueError


def _text(value: Any) -> str:
    _is(isinstance(value, str))
    return clean_text(value)


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        _is(type(value) is int and low <= value <= high)
        return int(value)

    return check


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        _is(isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high)
        return float(value)

    return check


def _list(check: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def of_list(value: Any) -> tuple[Any, ...]:
        _is(isinstance(value, list))
        return tuple(map(check, value))

    return of_list


def _or_null(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _outcome(value: Any) -> str:
    _is(isinstance(value, str) and value in REWARDS)
    return str(value)


def _context(value: Any) -> Any:
    _is(isinstance(value, dict))
    return cleaned(value)


def _call(value: Any) -> MadeCall:
    _is(isinstance(value, list) and len(value) == 3)
    tool, arguments, success = value
    _is(isinstance(orjson.loads(_text(arguments)), dict))
    _is(success is None or isinstance(success, bool))
    return MadeCall(_text(tool), _text(arguments), success)


def _reference(value: Any) -> int:
    return _ID(id_of_text(value) if isinstance(value, str) else value)


_ID = _integer(-(2**63), 2**63 - 1)
_TIME = _integer(0, LAST_MS)
_TEXT_OR_NULL = (_or_null(_text), "a text or null")
_SHARE = (_or_null(_number(0, 1)), "a number from 0 to 1, or null")
_MS = (_or_null(_number(0, 1e30)), "a number of milliseconds, or null")
_TEXTS = (_list(_text), "a list of texts")
_FIELDS: Final[Mapping[str, tuple[Callable[[Any], Any], str]]] = {
    "tenant": (_text, "a text"),
    "workflow_type": (_text, "a text"),
    "workflow_id": (_text, "a text"),
    "user_id": _TEXT_OR_NULL,
    "agent_id": _TEXT_OR_NULL,
    "session_id": _TEXT_OR_NULL,
    "started": (_TIME, "a time in Unix ms"),
    "ended": (_TIME, "a time in Unix ms"),
    "outcome": (_or_null(_outcome), f"{', '.join(REWARDS)} or null"),
    "reward": _SHARE,
    "confidence": _SHARE,
    "duration_ms": _MS,
    "cost_ms": _MS,
    "query": _TEXT_OR_NULL,
    "query_hash": (_or_null(_ID), "an integer of 64 bits, or null"),
    "context": (_context, "an object"),
    "context_hash": (_ID, "an integer of 64 bits"),
    "first_call": (_or_null(_ID), "an integer of 64 bits, or null"),
    "calls": (_list(_call), "a list of [tool, arguments as JSON text, success or null]"),
    "concepts": _TEXTS,
    "domains": _TEXTS,
    "agents_used": _TEXTS,
    "insights": _TEXTS,
    "reference_ids": (_list(_reference), "a list of ids of episodes"),
    "response": _TEXT_OR_NULL,
    "events": (_integer(1, 2**31 - 1), "a count from 1"),
}
