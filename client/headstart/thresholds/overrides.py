"""Reads manual overrides, and chooses the one that applies to a context and a tool.

They change the thresholds that are served, never those learned, and expire by wall clock. The
service writes them. The field `!overrides` of a hash holds them all and is always replaced as a
whole. One that cannot be read may have been set to stop something, so nothing starts where it
applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nextafter
from typing import Final, NamedTuple

import orjson

from headstart.thresholds.unreadable import warn_once

OVERRIDES_FIELD: Final = "!overrides"
"""Beside the paths in a hash of thresholds; no path begins with an exclamation mark."""


UNREACHABLE: Final = nextafter(1.0, 2.0)
"""A threshold that no confidence reaches."""


class Override(NamedTuple):
    """Thresholds that an operator set for a context path, for one tool or (None) for every tool.

    `path` "" is the whole workflow type. A threshold of None stays as learned. `until` is in
    Unix ms; None does not expire.
    """

    path: str = ""
    tool: str | None = None
    speculate: float | None = None
    suggest: float | None = None
    until: float | None = None
    by: str = ""
    reason: str = ""


_FIELDS: Final = frozenset(Override._fields)


def decode_overrides(raw: bytes | None) -> tuple[Override, ...]:
    """Return the overrides in a field's value, in order of precedence."""
    if raw is None:
        return ()
    try:
        return read_overrides(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return read_overrides(raw)


def read_overrides(stored: object) -> tuple[Override, ...]:
    """Return decoded overrides, most specific path first, tool-specific before general.

    One that cannot be read is warned of and starts nothing: at its path, for its tool and until it
    expires if those can be read, else everywhere, before all others. None: there are none.
    """
    if stored is None:
        return ()
    if not isinstance(stored, list):
        return (_unreadable({}, stored),)
    # "/" and "=" within values are percent-encoded, so slashes count levels.
    return tuple(sorted(map(_read, stored), key=_rank))


def _rank(override: Override) -> tuple[bool, int, bool]:
    path, everywhere = override.path, override.reason == _SOMEWHERE
    return (not everywhere, -path.count("/") - 1 if path else 0, override.tool is None)


_UNREADABLE: Final = "this override cannot be read, so nothing starts here"
_SOMEWHERE: Final = "an override cannot be read, and may be anywhere, so nothing starts"


def _read(stored: object) -> Override:
    if not isinstance(stored, dict):
        return _unreadable({}, stored)
    override = Override(
        stored.get("path") or "",
        stored.get("tool"),
        stored.get("speculate"),
        stored.get("suggest"),
        stored.get("until"),
        str(stored.get("by") or ""),
        str(stored.get("reason") or ""),
    )
    valid = (
        stored.keys() <= _FIELDS  # an unknown field may restrict something
        and _text(stored.get("path"))
        and _text(override.tool)
        and _confidence(override.speculate)
        and _confidence(override.suggest)
        and (override.until is None or _number(override.until))
    )
    return override if valid else _unreadable(stored, stored)


def _unreadable(known: dict[str, object], stored: object) -> Override:
    """Return the override that replaces one that cannot be read; `known`: its readable fields."""
    warn_once("an override", stored, "nothing starts where it may apply")
    path, tool, until = known.get("path"), known.get("tool"), known.get("until")
    if not known or not _text(path) or not _text(tool):
        return Override(speculate=UNREACHABLE, reason=_SOMEWHERE)
    return Override(
        path if isinstance(path, str) else "",
        tool if isinstance(tool, str) else None,
        speculate=UNREACHABLE,
        until=until if _number(until) else None,  # type: ignore[arg-type]
        by=str(known.get("by") or ""),
        reason=_UNREADABLE,
    )


def _text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _confidence(value: object) -> bool:
    return value is None or (_number(value) and 0.0 <= value <= 1.0)  # type: ignore[operator]


def applicable_override(
    overrides: Sequence[Override], paths: Sequence[str], tool: str | None, now_ms: float
) -> Override | None:
    """Return the override that applies to a context's paths and a tool; None if none does.

    `overrides` as `read_overrides` returns them. The first match applies alone: a threshold that it
    leaves None is not taken from a coarser one.
    """
    for each in overrides:
        if each.path and each.path not in paths:
            continue
        if each.tool is not None and each.tool != tool:
            continue
        if each.until is None or now_ms < each.until:
            return each
    return None
