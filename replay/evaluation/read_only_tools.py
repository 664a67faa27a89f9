"""Which tools only read: those that the caller names, else judged by name (an assumption)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_READING: Final = frozenset(
    (
        "get", "list", "search", "find", "read", "show", "view", "look", "lookup", "fetch", "query",
        "describe", "count", "check", "inspect", "examine", "calculate", "compute", "estimate",
        "display", "ls", "cat", "grep", "head", "tail", "pwd", "wc", "diff", "sort", "think",
        "compare", "retrieve", "browse", "select", "track", "validate", "verify", "preview",
    )
)  # fmt: skip
_WRITING: Final = frozenset(
    (
        "set", "add", "create", "update", "delete", "remove", "send", "write", "post", "put",
        "book", "cancel", "modify", "exchange", "return", "buy", "sell", "pay", "place", "submit",
        "save", "move", "copy", "open", "close", "start", "stop", "edit", "insert", "transfer",
    )
)  # fmt: skip
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class ReadOnlyTools(NamedTuple):
    """`holds`: whether a tool only reads; `assumption`: the sentence of what that rests on."""

    holds: Callable[[str], bool]
    assumption: str


def looks_read_only(tool: str) -> bool:
    """Return whether the first verb in a tool's name is one of reading."""
    for word in _WORDS.findall(tool):
        if word.lower() in _READING:
            return True
        if word.lower() in _WRITING:
            return False
    return False


def read_only_tools(given: Sequence[str], called: Iterable[str]) -> ReadOnlyTools:
    """Return the read-only tools.

    `given`: names, several separated by commas, or files with one name a line; none: by the names'
    verbs. `called`: all tools of the runs. Raises `ValueError` for a name that no run calls.
    """
    if not given:
        return ReadOnlyTools(
            looks_read_only,
            "a tool is taken for read-only if the first verb of its name is one of reading "
            "(get, list, search, ...); --read-only names them",
        )
    names = {name for each in given for name in _names(each)}
    if unknown := sorted(names.difference(called)):
        raise ValueError(
            f"--read-only: no run calls {', '.join(unknown[:5])}; the runs call "
            + ", ".join(sorted(set(called))[:10])
        )
    return ReadOnlyTools(names.__contains__, f"{len(names)} tools are read-only (--read-only)")


def _names(given: str) -> list[str]:
    file = Path(given)
    text = file.read_text(encoding="utf-8") if file.is_file() else given.replace(",", "\n")
    return [line.strip() for line in text.splitlines() if line.strip()]
