"""Reports values in Redis that a command could not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cli.support.output import echo

if TYPE_CHECKING:
    from sinks.redis.queries import UnreadableFields

_MOST_NAMED = 20


def report_unreadable(found: Sequence[UnreadableFields]) -> None:
    """Print the unreadable values and the remedy on stderr."""
    from sinks.redis.queries import REMEDY

    for each in found[:_MOST_NAMED]:
        echo(str(each))
    if len(found) > _MOST_NAMED:
        echo(f"and {len(found) - _MOST_NAMED} more")
    if found:
        echo(REMEDY)


def described(found: Sequence[UnreadableFields]) -> list[dict[str, Any]]:
    """Return unreadable values as JSON fields."""
    return [each._asdict() for each in found]
