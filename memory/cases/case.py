"""A case: what ranking needs of one finished run, and a question: what is known of a run so far."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import orjson

from headstart.prediction.interface import ToolCall
from memory.episodes.hashes import fold

UNKNOWN_REWARD: Final = 0.5
"""What a reward counts as where none is recorded."""
_WORD: Final = re.compile(r"[^\W_]+")


class Case(NamedTuple):
    """One finished run.

    `key`: its id. `writer`: the account that it comes from (one vote each); `task`: what it was to
    do, "" if unknown. `kind`: workflow type or domain; cases of two kinds are never compared.
    `query`: what the user asked for, "" for none. `reward`: 1 success, .5 partial, 0 failure, None
    unknown; taken from recorded outcomes, never from text. `at`: Unix ms, None if unknown.
    `support`: equal runs of the same writer that it stands for, with itself.
    """

    key: str
    writer: str
    task: str
    kind: str
    query: str
    calls: tuple[ToolCall, ...]
    reward: float | None
    at: int | None
    support: int = 1

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools in the order of the calls."""
        return tuple(call.tool for call in self.calls)

    @property
    def rest(self) -> tuple[str, ...]:
        """The tools after the first call."""
        return self.tools[1:]


def words(text: str) -> list[str]:
    """Return the words of a text, folded, in order; digits count as letters."""
    return _WORD.findall(fold(text))


def call_key(call: ToolCall) -> bytes:
    """Return a call as canonical JSON: equal for equal tools and arguments in any order of keys."""
    return orjson.dumps([call.tool, call.arguments], option=_CANONICAL, default=str)


_CANONICAL: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def call_parts(call: ToolCall) -> frozenset[str]:
    """Return the tool and each argument with its value, to measure how alike two calls are."""
    values = (
        f"{name}={orjson.dumps(value, option=_CANONICAL, default=str).decode()}"
        for name, value in call.arguments.items()
    )
    return frozenset((call.tool, *values))
