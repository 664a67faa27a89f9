"""Which writers of cases are independent of each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

USER: Final = "user:"
AGENT: Final = "agent:"
UNNAMED: Final = ("run:", "session:")
"""Prefixes of writers that anybody can have as many of as they like: together they are one."""


def independent_writer(writer: str) -> str:
    """Return the writer, or one name for all that name neither user nor agent."""
    return UNNAMED[0] if writer.startswith(UNNAMED) else writer


def independent_count(writers: Iterable[str]) -> int:
    """Return how many of these writers are independent.

    Writers are as `memory.episodes.record.writer_of` names them. All runs that name neither user
    nor agent are one writer, because a session costs nothing to open.
    """
    return len(set(map(independent_writer, writers)))
