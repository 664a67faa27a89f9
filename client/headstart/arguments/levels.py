"""Checks the names of levels: those with which nothing would be learned are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.arguments.checks import OTHER_NAMES, InvalidArgument
from headstart.events.schema import Event
from headstart.keys import DEFAULT_LEVELS

OF_EVENTS: Final = ("user_id", "agent_id", "session_id", "tool_id")
"""The fields of an event that can be levels; all others are keys of `data.context`."""

_IMPLIED: Final = ("workflow_type", "tenant")
_NEARLY: Final = 0.85
_KNOWN: Final = frozenset((*DEFAULT_LEVELS, *OF_EVENTS, *_IMPLIED))


def split_levels(text: str) -> tuple[str, ...]:
    """Return the names in a text such as `domain,user_id`, unchecked."""
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def require_levels(levels: Sequence[str]) -> None:
    """Raise `InvalidArgument` naming an invalid level, and the fix."""
    if wrong := wrong_level(levels):
        raise InvalidArgument(f"levels: {wrong}")


def wrong_level(levels: Sequence[str]) -> str | None:
    """Return why these cannot be the levels; None if they are valid, as no levels are."""
    for place, name in enumerate(levels):
        if not name or name != name.strip() or "," in name:
            return f"{name!r} is no name; give KEY[,KEY], without empty parts"
        if name in levels[:place]:
            return f"{name!r} is there twice; give each key once"
        if name in _IMPLIED:
            return f"{name!r} is part of every context already; leave it out"
        if _plain(name) in _FIELDS:
            fields = ", ".join(OF_EVENTS)
            return f"{name!r} is no level; give {fields}, or keys of data.context"
        if name not in _KNOWN and (meant := _meant(name)):
            fix = "leave it out" if meant in _IMPLIED else f"did you mean {meant!r}?"
            return f"{name!r} is nearly {meant!r}, and would be another key; {fix}"
    return None


def _meant(name: str) -> str | None:
    """Return the known level or implied key that a name is another spelling of."""
    plain = _plain(name)
    if (other := OTHER_NAMES.get(plain) or OTHER_NAMES.get(plain.removesuffix("s"))) in OF_EVENTS:
        return other
    if plain == "tenantid":
        return "tenant"
    return next((each for each in sorted(_KNOWN) if _alike(plain, _plain(each))), None)


def _alike(one: str, other: str) -> bool:
    """Return whether names differ by one or two letters, but not in the first (`pool_id`)."""
    if one == other:
        return True
    if one[:1] != other[:1] or abs(len(one) - len(other)) > 2:
        return False
    from difflib import SequenceMatcher  # only for unknown keys

    return SequenceMatcher(None, one, other).ratio() >= _NEARLY


def _plain(name: str) -> str:
    return "".join(each for each in name.casefold() if each.isalnum())


_FIELDS: Final = frozenset(
    _plain(each) for each in (*Event.__annotations__, "context") if each not in _KNOWN
)
"""Fields of an event that cannot be levels."""
