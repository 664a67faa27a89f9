"""How commands name what they could not read in Redis, beside what they could."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cli.support.output import say

if TYPE_CHECKING:
    from sinks.redis.queries import UnreadableFields

_MOST_NAMED = 20


def say_unreadable(found: Sequence[UnreadableFields]) -> None:
    """Name what could not be read, and what to do about it, on stderr."""
    from sinks.redis.queries import REMEDY

    for each in found[:_MOST_NAMED]:
        say(str(each))
    if len(found) > _MOST_NAMED:
        say(f"and {len(found) - _MOST_NAMED} more")
    if found:
        say(REMEDY)


def described(found: Sequence[UnreadableFields]) -> list[dict[str, Any]]:
    """Return what could not be read as JSON shows it."""
    return [each._asdict() for each in found]
