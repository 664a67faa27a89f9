"""Recorded runs with arguments and results: their fields, checked one by one.

Liberal: only the tools and arguments of the steps are required (docs/reference/files.md). Not here:
reading files (`runs_file`), and what a run shows when (`decision_points`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

import orjson

from headstart.events.schema import LAST_MS
from replay.files.repeated_keys import marked, repeated_key
from replay.files.times import iso_ms, refuse_other_units
from topics.spans.storable import NotStorable, read_json, storable

ONE_DOMAIN: Final = "default"
"""The domain of runs that name none."""


class InvalidRun(ValueError):
    """A record is not a run; the message names the field and the reason."""


class UnknownArguments(InvalidRun):
    """The arguments of a call are not known, so no guess of it could be judged."""


class RecordedCall(NamedTuple):
    """One call of a tool; times in Unix ms, None where none is recorded.

    `seen_at`: when the model had its last input before this call. `turn`: calls of one turn were
    made in parallel. `said_before`: one longer than `user_before`: the agent's messages before each
    and, at last, together with the call; "" for none.
    """

    tool: str
    arguments: Mapping[str, object]
    result: object
    error: bool
    turn: int
    user_before: tuple[str, ...]
    said_before: tuple[str, ...]
    seen_at: int | None
    called_at: int | None
    returned_at: int | None


class RecordedRun(NamedTuple):
    """One run of an agent; `task`: "" if unknown.

    `query`: what the user asked for, "" if not recorded apart from the messages; `reward`: 1 for
    success to 0, None if unknown; `started_at`: Unix ms, None if unknown.
    """

    domain: str
    agent: str
    task: str
    user_id: str
    steps: tuple[RecordedCall, ...]
    user_after: tuple[str, ...]
    said_after: tuple[str, ...]
    query: str = ""
    reward: float | None = None
    started_at: int | None = None


def run_of_record(record: Any) -> RecordedRun:
    """Return the run of a record, which is a JSON value.

    Raises `InvalidRun`, of it `UnknownArguments` where a call's arguments are null.
    """
    if not isinstance(record, dict):
        raise InvalidRun(f"a run must be an object, not {_kind(record)}")
    _refuse_twice(record, "the run", deep=False)
    if "steps" not in record:
        raise InvalidRun("steps is missing: give the list of the run's calls")
    steps = record["steps"]
    if not isinstance(steps, list):
        raise InvalidRun(f"steps must be a list, not {_kind(steps)}")
    user_after = _texts(record.get("user_after"), "user_after")
    return RecordedRun(
        domain=_label(record.get("domain"), "domain") or ONE_DOMAIN,
        agent=_label(record.get("agent_model"), "agent_model"),
        task=_label(record.get("task_id"), "task_id"),
        user_id=_label(record.get("user_id"), "user_id"),
        steps=tuple(_step(step, index) for index, step in enumerate(steps)),
        user_after=user_after,
        said_after=_agent_texts(record.get("said_after"), "said_after", len(user_after)),
        query=record["query"] if isinstance(record.get("query"), str) else "",
        reward=_reward(record.get("reward")),
        started_at=_started(record.get("started_at")),
    )


def _reward(value: Any) -> float | None:
    """Return a reward within 0 to 1; None for none, and for what is no number."""
    if isinstance(value, int | float) and isfinite(value):
        return min(max(float(value), 0.0), 1.0)
    return None


def _started(value: Any) -> int | None:
    """Return the start of a run as Unix ms; None where it is not known or in another unit."""
    try:
        return _time(value, "started_at")
    except InvalidRun:
        return None


def _step(step: Any, index: int) -> RecordedCall:
    where = f"steps[{index}]"
    if not isinstance(step, dict):
        raise InvalidRun(f"{where} must be an object, not {_kind(step)}")
    _refuse_twice(step, where, deep=False)
    tool = step.get("tool")
    if not isinstance(tool, str) or not tool:
        raise InvalidRun(f"{where}.tool must be a text that is not empty, not {_kind(tool)}")
    user_before = _texts(step.get("user_before"), f"{where}.user_before")
    turn = step.get("turn")
    if turn is not None and (not isinstance(turn, int) or isinstance(turn, bool)):
        raise InvalidRun(f"{where}.turn must be an integer, not {_kind(turn)}")
    return RecordedCall(
        tool,
        _arguments(step, where),
        _result(step.get("result"), f"{where}.result"),
        _error(step.get("error"), where),
        # Without a turn a call is a turn of its own; recorded turns are never negative.
        -1 - index if turn is None else turn,
        user_before,
        _agent_texts(step.get("said_before"), f"{where}.said_before", len(user_before)),
        *(_time(step.get(name), f"{where}.{name}") for name in _TIMES),
    )


_TIMES: Final = ("seen_at", "called_at", "returned_at")


def _arguments(step: Mapping[str, Any], where: str) -> Mapping[str, object]:
    name = next((each for each in ("args", "arguments") if each in step), None)
    if name is None:
        raise InvalidRun(
            f"{where}.args is missing: give the call's arguments as an object, {{}} for none"
        )
    given = step[name]
    if isinstance(given, str):  # as the APIs of models give them
        try:
            given = marked(given, read_json(given or "{}"))
        except orjson.JSONDecodeError as error:
            raise InvalidRun(f"{where}.{name} is a text, but not of JSON ({error})") from None
    if given is None:
        raise UnknownArguments(
            f"{where}.{name} is null: its arguments are not known, no guess of it can be judged; "
            "give an object, {} for none"
        )
    if not isinstance(given, dict):
        raise InvalidRun(f"{where}.{name} must be an object, not {_kind(given)}")
    _refuse_twice(given, f"{where}.{name}")
    found: dict[str, object] = _storable(given, f"{where}.{name}")
    return found


def _refuse_twice(value: Any, name: str, *, deep: bool = True) -> None:
    """Raise `InvalidRun` for a key that is given twice. `deep`: at any depth."""
    key = repeated_key(value) if deep else getattr(value, "key", None)
    if key is not None:
        raise InvalidRun(f"{name} gives the key {key!r} twice; remove one of them")


def _result(value: Any, name: str) -> object:
    """Return a result; JSON of an object or list that is given as text is parsed."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = read_json(value)
        except orjson.JSONDecodeError:
            return value
    return _storable(value, name, numbers_as_text=True)


def _storable(value: Any, name: str, *, numbers_as_text: bool = False) -> Any:
    try:
        return storable(value, numbers_as_text=numbers_as_text)
    except NotStorable as reason:
        raise InvalidRun(f"{name}: its values {reason}") from None


def _error(value: Any, where: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str):  # the message of an error
        return bool(value)
    raise InvalidRun(f"{where}.error must be true or false, not {_kind(value)}")


def _label(value: Any, name: str) -> str:
    """Return a text; "" for none."""
    if value is None:
        return ""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise InvalidRun(f"{name} must be a text, not {_kind(value)}")


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise InvalidRun(f"{name} must be a list of texts, not {_kind(value)}")


def _agent_texts(value: Any, name: str, messages: int) -> tuple[str, ...]:
    """Return the agent's texts around some messages of the user: one more than there are."""
    if value is None:
        value = []
    if isinstance(value, str):
        value = [*[None] * messages, value]
    if not isinstance(value, list) or not all(x is None or isinstance(x, str) for x in value):
        raise InvalidRun(f"{name} must be a list of texts and nulls, not {_kind(value)}")
    if len(value) > messages + 1:
        raise InvalidRun(
            f"{name} has {len(value)} entries, {messages} messages of the user allow at most "
            f"{messages + 1}: one before each message, one after the last"
        )
    return tuple([each or "" for each in value] + [""] * (messages + 1 - len(value)))


def _time(value: Any, name: str) -> int | None:
    if value is None:
        return None
    try:
        refuse_other_units(value, name)
    except ValueError as error:
        raise InvalidRun(str(error)) from None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LAST_MS:
        return int(value) or None
    at = iso_ms(value)
    if at is None:
        raise InvalidRun(f"{name} must be Unix ms, an ISO 8601 time or null, not {value!r}")
    return at


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    if value is None:
        return "null"
    return names.get(type(value), "a number")
