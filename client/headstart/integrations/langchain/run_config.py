"""Reads the user and session of a run from the configuration of a graph's invocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from langgraph.config import get_config

from headstart.events.constructors import scope

_FIELDS: Final = {"user_id": "user_id", "thread_id": "session_id"}
"""Keys of `configurable`, and the fields of a run's context that they give."""


def context_of_config() -> Mapping[str, object]:
    """Return the user and session of the invocation, as far as its configuration names them.

    For `agent.invoke(..., {"configurable": {"user_id": "u7", "thread_id": "t1"}})` they are `u7`
    and `t1`. What a current `headstart.workflow` names takes precedence.
    """
    try:
        configurable = get_config().get("configurable") or {}
    except RuntimeError:  # called outside of a graph
        return {}
    current = scope.get()
    found = {
        field: configurable.get(key) for key, field in _FIELDS.items() if not current.get(field)
    }
    return {field: str(value) for field, value in found.items() if value not in (None, "")}
