"""Manual overrides as a reader honours them: which one applies to a context and a tool.

They change what is served, never what is learned, and expire by wall clock. Writing them is the
service's. The field `!overrides` of a hash holds them all, and is always replaced as a whole. One
that cannot be read may have been set to stop something, so nothing starts where it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nextafter
from typing import Final, NamedTuple

import orjson

from headstart.thresholds.unreadable import warn_once

OVERRIDES_FIELD: Final = "!overrides"
"""Beside the paths in a hash of thresholds; no path begins with an exclamation mark."""


NOTHING: Final = nextafter(1.0, 2.0)
"""As a threshold: no confidence reaches it."""


class Override(NamedTuple):
    """What an operator has set for a context path, for one tool or (None) for every tool.

    `path` "" is the whole workflow type. A threshold that is None stays as learned. `until` is in
    Unix ms, None for good.
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
    """Return the overrides in a field's value, in the order in which they are asked."""
    if raw is None:
        return ()
    try:
        return read_overrides(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return read_overrides(raw)


def read_overrides(stored: object) -> tuple[Override, ...]:
    """Return decoded overrides, most specific path first, tool-specific before general.

    One that cannot be read is warned of and starts nothing: at its path, for its tool and until its
    end as far as those can be read, else everywhere, before all others. None: there are none.
    """
    if stored is None:
        return ()
    if not isinstance(stored, list):
        return (_unreadable({}, stored),)
    # "/" and "=" within values are percent-encoded, so slashes count levels
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
    sound = (
        stored.keys() <= _FIELDS  # of another field nobody here knows what it restricts
        and _text(stored.get("path"))
        and _text(override.tool)
        and _confidence(override.speculate)
        and _confidence(override.suggest)
        and (override.until is None or _number(override.until))
    )
    return override if sound else _unreadable(stored, stored)


def _unreadable(known: dict[str, object], stored: object) -> Override:
    """Return what holds in the place of an override; of `known` what can be read of it."""
    warn_once("an override", stored, "nothing starts where it may hold")
    path, tool, until = known.get("path"), known.get("tool"), known.get("until")
    if not known or not _text(path) or not _text(tool):
        return Override(speculate=NOTHING, reason=_SOMEWHERE)
    return Override(
        path if isinstance(path, str) else "",
        tool if isinstance(tool, str) else None,
        speculate=NOTHING,
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


def applying(
    overrides: Sequence[Override], paths: Sequence[str], tool: str | None, now_ms: float
) -> Override | None:
    """Return the override for a context's paths and a tool; None where none applies.

    `overrides` as `read_overrides` returns them. The first that matches wins whole: what it leaves
    None is not looked for in a coarser one.
    """
    for each in overrides:
        if each.path and each.path not in paths:
            continue
        if each.tool is not None and each.tool != tool:
            continue
        if each.until is None or now_ms < each.until:
            return each
    return None
