"""Reads manual overrides, and chooses the one that applies to a context and a tool.

They change the thresholds that are served, never those learned, and expire by wall clock. The
service writes them. The field `!overrides` of a hash holds them all and is always replaced as a
whole. One that cannot be read may have been set to stop something, so nothing starts where it
applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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

    `path` "" is the whole workflow type; a path that leaves out a level applies to all its values.
    A threshold of None stays as learned. `until` is in Unix ms; None does not expire.
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
    """Return the overrides in a field's value, in order of precedence. None: no such field."""
    if raw is None:
        return ()
    try:
        return read_overrides(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return read_overrides(raw)


def read_overrides(stored: object) -> tuple[Override, ...]:
    """Return decoded overrides, most specific path first, tool-specific before general.

    One that cannot be read is warned of and starts nothing: at its path, for its tool and until it
    expires if those can be read, else everywhere, before all others. So does what is no list.
    """
    if not isinstance(stored, list):
        return (_unreadable({}, stored),)
    return tuple(sorted(map(_read, stored), key=_rank))


def _rank(override: Override) -> tuple[bool, int, str, bool]:
    path, everywhere = override.path, override.reason == _SOMEWHERE
    # "/" and "=" within values are percent-encoded, so slashes separate levels.
    return (not everywhere, -len(path_parts(path)), path, override.tool is None)


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
    overrides: Sequence[Override],
    paths: Sequence[str],
    tool: str | None,
    now_ms: float,
    learned: float = UNREACHABLE,
) -> Override | None:
    """Return the override that applies to a context's paths and a tool; None if none does.

    `overrides` as `read_overrides` returns them; `learned`: the context's own `speculate`, which a
    threshold of None leaves. One matches if every part of its path is a part of the context's, so
    one for a user matches in every domain. The one with the most parts applies, at one path the one
    for the tool; of several paths with equally many parts the one with the highest threshold. It
    applies alone: a threshold that it leaves None is not taken from a coarser one.
    """
    parts = path_parts(max(paths, key=len, default=""))
    best: Override | None = None
    decided, levels = "", 0
    for each in overrides:
        own = path_parts(each.path)
        if best is not None and len(own) < levels:
            break
        if best is not None and each.path == decided:
            continue
        if each.tool not in (None, tool) or not own <= parts:
            continue
        if each.until is not None and now_ms >= each.until:
            continue
        if each.reason == _SOMEWHERE:
            return each
        if best is None or _caution(each, learned) > _caution(best, learned):
            best = each
        decided, levels = each.path, len(own)
    return best


def _caution(override: Override, learned: float) -> tuple[float, float]:
    """Return the thresholds of an override by which the higher of two is chosen."""
    speculate, suggest = override.speculate, override.suggest
    return learned if speculate is None else speculate, 0.0 if suggest is None else suggest


@lru_cache(maxsize=4096)
def path_parts(path: str) -> frozenset[str]:
    """Return the parts `level=value` of a path; none of "", the whole workflow type."""
    return frozenset(path.split("/")) if path else frozenset()
