"""Manual overrides as a reader honours them: which one applies to a context and a tool.

They change what is served, never what is learned, and expire by wall clock. Writing them is the
service's. The field `!overrides` of a hash holds them all, and is always replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson

OVERRIDES_FIELD: Final = "!overrides"
"""Beside the paths in a hash of thresholds; no path begins with an exclamation mark."""


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


def decode_overrides(raw: bytes | None) -> tuple[Override, ...]:
    """Return the overrides in a field's value, in the order in which they are asked."""
    try:
        return read_overrides(orjson.loads(raw)) if raw else ()
    except orjson.JSONDecodeError:
        return ()


def read_overrides(stored: object) -> tuple[Override, ...]:
    """Return decoded overrides, most specific path first, tool-specific before general.

    One that is corrupt is left out, as a corrupt threshold is.
    """
    if not isinstance(stored, list):
        return ()
    found = [each for each in map(_read, stored) if each is not None]
    # "/" and "=" within values are percent-encoded, so slashes count levels
    depth = {each.path: each.path.count("/") + 1 if each.path else 0 for each in found}
    return tuple(sorted(found, key=lambda each: (-depth[each.path], each.tool is None)))


def _read(stored: object) -> Override | None:
    if not isinstance(stored, dict):
        return None
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
        isinstance(override.path, str)
        and (override.tool is None or isinstance(override.tool, str))
        and _confidence(override.speculate)
        and _confidence(override.suggest)
        and (override.until is None or _number(override.until))
    )
    return override if sound else None


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
