"""Reads the path of an event: tenant, workflow type, and the values of the levels below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from headstart.events.schema import MAX_IDENTIFIER
from headstart.keys import level_value
from topics.schema.event_structs import EventFields

ContextKey = tuple[str | None, ...]
"""Tenant, workflow type, and the value of each level; None where a level is skipped."""

_TOP_LEVEL: Final = frozenset({"user_id", "agent_id", "session_id", "tool_id"})


def context_key_getter(levels: Sequence[str]) -> Callable[[EventFields], ContextKey]:
    """Return a function that reads the key of an event's path.

    Numbers become the text under which readers find them.
    """
    if _TOP_LEVEL.issuperset(levels):
        return attrgetter("tenant", "workflow_type", *levels)
    if sum(level not in _TOP_LEVEL for level in levels) == 1:
        return _with_one_deeper(levels)
    getters = [(level, attrgetter(level) if level in _TOP_LEVEL else None) for level in levels]

    def read(event: EventFields) -> ContextKey:  # a call for each level would double the cost
        data = event.data
        context = data.context if data is not None else None
        key: list[str | None] = [event.tenant, event.workflow_type]
        for level, getter in getters:
            if getter is not None:
                key.append(getter(event))
            elif not context:
                key.append(None)
            else:
                value = context.get(level)
                short = type(value) is str and len(value) <= MAX_IDENTIFIER
                key.append(value if short else level_value(value))
        return tuple(key)

    return read


def _with_one_deeper(levels: Sequence[str]) -> Callable[[EventFields], ContextKey]:
    """Return the same, faster, for one level in `data.context` among top ones, as by default."""
    (level,) = [level for level in levels if level not in _TOP_LEVEL]
    at = 2 + levels.index(level)
    top: Callable[[EventFields], ContextKey] = attrgetter(
        "tenant", "workflow_type", *(each for each in levels if each != level)
    )

    def read(event: EventFields) -> ContextKey:
        key, data = top(event), event.data
        value = data.context.get(level) if data is not None and data.context else None
        if type(value) is not str or len(value) > MAX_IDENTIFIER:
            value = level_value(value)
        return (*key[:at], value, *key[at:])

    return read
