"""The fields of recorded runs for predictors of whole calls, each checked for its type.

As docs/reference/files.md has them; liberal where `replay.evaluation.recorded_run` is: arguments
may be JSON as text, and one text stands for a list of texts. Not here: the other fields (`traces`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from replay.files.times import iso_ms
from topics.spans.storable import read_json


class InvalidContent(ValueError):
    """A field is of the wrong type; the message names it."""


def step_content(step: Mapping[str, Any], where: str) -> Mapping[str, object]:
    """Return these fields of a step. Raises `InvalidContent`.

    `where`: the step's name in messages. `arguments`, another name of `args`, becomes `args`.
    """
    if "arguments" in step and "args" not in step:
        step = {**step, "args": step["arguments"]}
    return _checked(step, _OF_STEP, f"{where}.")


def run_content(record: Mapping[str, Any]) -> Mapping[str, object]:
    """Return these fields of a run. Raises `InvalidContent`."""
    return _checked(record, _OF_RUN, "")


def _checked(record: Mapping[str, Any], fields: Mapping[str, _Form], where: str) -> dict[str, Any]:
    kept = {name: record[name] for name in fields if name in record}
    for name, value in kept.items():
        holds, wanted = fields[name]
        if value is not None and not holds(value):
            shown = repr(value)
            raise InvalidContent(f"{where}{name} must be {wanted}, not {shown[:_SHOWN]}")
    return kept


def _are_arguments(value: Any) -> bool:
    if not isinstance(value, str):
        return isinstance(value, dict)
    try:
        found = read_json(value or "{}")
    except orjson.JSONDecodeError:
        return False
    return found is None or isinstance(found, dict)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def _are_texts_and_nulls(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(each is None or isinstance(each, str) for each in value)
    )


def _is_time(value: Any) -> bool:
    if isinstance(value, str):
        return iso_ms(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_any(_value: Any) -> bool:
    return True


_Form = tuple[Callable[[Any], bool], str]
"""Whether a value is of the form, and the form in words."""
_SHOWN: Final = 60
_TEXTS: Final[_Form] = (_are_texts, "a list of texts")
_SAID: Final[_Form] = (_are_texts_and_nulls, "a list of texts and nulls")
_INTEGER: Final[_Form] = (_is_integer, "an integer")
_OF_STEP: Final[Mapping[str, _Form]] = {
    "args": (_are_arguments, "a JSON object (also as text) or null"),
    "result": (_is_any, "JSON"), "result_chars": _INTEGER, "user_before": _TEXTS,
    "said_before": _SAID, "turn": _INTEGER,
    "seen_at": (_is_time, "Unix ms, an ISO 8601 time or null"),
}  # fmt: skip
_OF_RUN: Final[Mapping[str, _Form]] = {"user_after": _TEXTS, "said_after": _SAID}
