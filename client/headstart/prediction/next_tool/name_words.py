"""Which tools' names share words with a text: `cancel_order` with "cancel my order"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_BOUNDARY: Final = re.compile(r"[_\W]+|(?<=[a-z])(?=[A-Z])")
_BEGINNING: Final = 6  # letters of a word that have to be equal
_TOO_COMMON: Final = frozenset(("get", "the", "for"))
SHARES: Final = 16


def words_of(name: str) -> list[str]:
    """Return the beginnings of the words of a tool's name."""
    found = _BOUNDARY.split(name[:200])
    return [w[:_BEGINNING].lower() for w in found if len(w) > 2 and w.lower() not in _TOO_COMMON]


class NameWords:
    """The words of all tools' names."""

    def __init__(self) -> None:
        self._tools: dict[str, list[tuple[str, int]]] = {}

    def add(self, tool: str) -> None:
        """Index the name of a tool."""
        parts = words_of(tool)
        for part in parts:
            self._tools.setdefault(part, []).append((tool, SHARES // len(parts)))

    def named(self, agent: Sequence[str], user: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
        """Return each tool of whose name a text has words: its shares, of 16, of agent and user."""
        by_agent, by_user = self._shares(agent), self._shares(user)
        tools = list(dict.fromkeys([*by_agent, *by_user]))
        return tuple([(tool, by_agent.get(tool, 0), by_user.get(tool, 0)) for tool in tools])

    def _shares(self, words: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for part in dict.fromkeys([word[:_BEGINNING] for word in words]):
            for tool, share in self._tools.get(part, ()):
                found[tool] = found.get(tool, 0) + share
        return found
