"""Lists what applies where an override was unset: other overrides, or what is learned. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

from headstart.keys import context_paths
from headstart.thresholds.overrides import (
    Override,
    applicable_override,
    path_parts,
    read_overrides,
)

_NAMED: Final = 5
"""Most further overrides that are named in text."""


class RemainingOverrides(NamedTuple):
    """Overrides that concern a context and a tool.

    `applies`: the one that applies to them; None: what is learned is served. `others`: those that
    apply to single tools there, if every tool is meant, and those of contexts below.
    """

    applies: Override | None
    others: tuple[Override, ...]

    @property
    def as_json(self) -> dict[str, Any]:
        """The overrides as JSON fields."""
        applies = None if self.applies is None else self.applies._asdict()
        return {"applies": applies, "others": [each._asdict() for each in self.others]}


def remaining_overrides(
    stored: object, workflow_type: str, path: str, tool: str | None, now: int
) -> RemainingOverrides:
    """Return what `stored`, the overrides that Redis serves, sets for a path and a tool.

    `path` "" is the whole workflow type; `tool` None is every tool. `now`: Unix ms.
    """
    overrides = read_overrides(stored)
    finest = path or context_paths(workflow_type, lambda _level: None)[0]
    paths = tuple(accumulate(finest.split("/"), "{}/{}".format))
    applies = applicable_override(overrides, paths, tool, now)

    def concerns(each: Override) -> bool:
        if each is applies or (each.until is not None and each.until <= now):
            return False
        if not path_parts(each.path) <= path_parts(finest):
            return _overlaps(each.path, finest) and (tool is None or each.tool in (None, tool))
        return tool is None and applicable_override(overrides, paths, each.tool, now) is each

    return RemainingOverrides(applies, tuple(filter(concerns, overrides)))


def _overlaps(one: str, other: str) -> bool:
    """Return whether a context can have both paths' levels: no level has two values."""
    levels = {part.partition("=")[0] for part in path_parts(one) | path_parts(other)}
    return len(levels) == len(path_parts(one) | path_parts(other))


def sentences(found: RemainingOverrides) -> Iterator[str]:
    """Yield what applies now, one line each."""
    if found.applies is None:
        yield "unset: the learned threshold is served again"
    else:
        yield f"unset: this override applies there now: {_described(found.applies)}"
    for each in found.others[:_NAMED]:
        yield f"also in force, for one tool or a context below: {_described(each)}"
    if (more := len(found.others) - _NAMED) > 0:
        yield f"and {more} more; `headstart config list` shows them"


def _described(override: Override) -> str:
    named = (("speculate", override.speculate), ("suggest", override.suggest))
    what = ", ".join(f"{name} {value:g}" for name, value in named if value is not None)
    why = f" ({override.reason})" if override.reason else ""
    where = override.path or "the whole workflow type"
    return f"{where}, {override.tool or 'every tool'}: {what or 'as learned'}{why}"
