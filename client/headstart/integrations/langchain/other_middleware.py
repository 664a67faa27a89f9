"""What the other middleware of an agent means for guesses: its order, and whose calls it approves.

`create_agent` gives middleware no access to the rest of the list, so the list is read from its
frame while it asks for the middleware's tools; and each hook's handler shows whether other
middleware is within it. Where neither is known, guesses are as the set-up allows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

_FACTORY: Final = "langchain.agents.factory"
_FRAMES: Final = 4
"""Frames between the factory and the property that it reads."""


class AgentList(NamedTuple):
    """The list of an agent's middleware. `pauses`: the agent stops before its tools."""

    middleware: Sequence[object]
    pauses: bool

    def inner(self, own: object) -> list[str]:
        """Return the names of middleware after `own`, whose hooks its answers would bypass."""
        place = next((n for n, each in enumerate(self.middleware) if each is own), None)
        after = [] if place is None else self.middleware[place + 1 :]
        return [type(each).__name__ for each in after if _wraps_tools(each)]

    def approved(self) -> set[str]:
        """Return the tools whose calls a person approves."""
        found: set[str] = set()
        for each in self.middleware:
            named = getattr(each, "interrupt_on", None)
            if isinstance(named, Mapping):
                found |= {str(tool) for tool, asked in named.items() if asked is not False}
        return found


def calling_list() -> AgentList | None:
    """Return the list of the `create_agent` that is calling; None outside of one."""
    frame: Any = sys._getframe(1)
    for _ in range(_FRAMES):
        frame = frame.f_back
        if frame is None:
            return None
        if frame.f_globals.get("__name__") == _FACTORY and frame.f_code.co_name == "create_agent":
            named = frame.f_locals
            listed = named.get("middleware")
            if not isinstance(listed, Sequence):
                return None
            return AgentList(list(listed), "tools" in (named.get("interrupt_before") or ()))
    return None


def is_innermost(handler: object) -> bool:
    """Return whether a hook's handler calls the tool or model itself, and no other middleware."""
    return not (
        getattr(handler, "__module__", None) == _FACTORY
        and "compose" in getattr(handler, "__qualname__", "")
    )


def _wraps_tools(middleware: object) -> bool:
    return any(
        any(name in vars(kind) for kind in type(middleware).__mro__[:-1] if _is_own(kind))
        for name in ("wrap_tool_call", "awrap_tool_call")
    )


def _is_own(kind: type) -> bool:
    return not (kind.__name__ == "AgentMiddleware" and kind.__module__.startswith("langchain."))
