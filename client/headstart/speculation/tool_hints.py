"""Reads hints about a tool's safety, in every spelling and nesting of the frameworks.

MCP has `readOnlyHint` and `destructiveHint` (its Python SDK 2.x `read_only_hint`,
`destructive_hint`). Frameworks keep them under `annotations` or `metadata` of the tool. A hint that
is ambiguous is read so that the tool does not run on a guess.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from functools import cache, lru_cache
from typing import Final, NamedTuple

READ_ONLY: Final = (
    "readOnlyHint", "read_only_hint", "readOnly", "read_only", "side_effect_free",
)  # fmt: skip
DESTRUCTIVE: Final = ("destructiveHint", "destructive_hint", "destructive", "is_destructive")
APPROVAL: Final = (
    "needs_approval", "requires_approval", "require_approval", "approval_required", "approval_mode",
    "default_requires_approval", "human_approval", "requires_human_approval", "human_in_the_loop",
    "requires_confirmation", "require_confirmation", "needs_confirmation", "confirmation_required",
    "requires_user_input", "human_input", "external_execution", "external_execution_required",
    "interrupt_on", "is_consequential", "x_openai_is_consequential",
)  # fmt: skip
"""Hints of a tool whose calls a person must approve; a function decides per call."""
_NO_APPROVAL: Final = ("never", "never_require")
"""Their values, besides False, that mean no approval."""
_UNAPPROVED: Final = "unapproved"
"""The `kind` of a tool that needs approval in Pydantic AI."""
NESTED: Final = ("annotations", "metadata", "mcp_annotations", "mcp", "tool")
"""Where frameworks keep hints: LangChain in `metadata["mcp"]["tool"]["annotations"]`."""
ALSO_NESTED: Final = (
    "meta", "extra", "extras", "hints", "custom_metadata", "additional_properties", "model_extra",
    "mcp_tool", "raw_tool", "tool_def", "tool_definition", "tool_config", "function", "func",
)  # fmt: skip
"""Where hints may forbid a start, but do not allow one."""
_DEPTH: Final = 5
"""Levels of nesting in which a tool may be declared read-only."""
_PLACES: Final = 64
"""Most mappings and objects that are searched; a tool with more counts as needing approval."""
_PLAIN: Final = (str, bytes, int, float, type(None))
"""Values that hold no hints."""
_LISTS: Final = (list, tuple, set, frozenset)
"""Values whose elements may hold hints that forbid a start."""
_UNREADABLE: Final = object()
"""Stands for an attribute that raised when it was read."""

_LOG = logging.getLogger(__name__)


class Hints(NamedTuple):
    """Hints about a tool; False if absent or ambiguous."""

    read_only: bool = False
    destructive: bool = False
    approval: bool = False


class _Place(NamedTuple):
    """A mapping or an object that may hold hints. `usual`: where a tool is declared read-only."""

    holder: object
    depth: int
    usual: bool


def read_hints(tool: str, declared: object) -> Hints:
    """Return the hints about `tool` in `declared`: annotations, metadata, or the tool itself.

    Every spelling is looked at, of keys and attributes. A tool is read-only if all its hints about
    that are true, and one of them is in a usual place; it is destructive if one hint is true. A
    hint that is no boolean is logged as a warning, and counts as the less safe value.
    """
    places = _places(declared)
    read_only = _values(tool, places, READ_ONLY)
    destructive = _values(tool, places, DESTRUCTIVE)
    return Hints(
        any(map(_declares_read_only, places)) and all(value is True for value in read_only),
        any(value is not False for value in destructive),
        any(_needs_approval(value) for _, value in _named(places, APPROVAL))
        or any(_is_unapproved(value) for _, value in _named(places, ("kind",)))
        or len(places) > _PLACES
        or any(place.holder is _UNREADABLE for place in places),
    )


def _needs_approval(value: object) -> bool:
    return value is not False and not (isinstance(value, str) and value in _NO_APPROVAL)


def _is_unapproved(kind: object) -> bool:
    kind = kind.value if isinstance(kind, Enum) else kind
    return isinstance(kind, str) and _plain(kind) == _UNAPPROVED


def _declares_read_only(place: _Place) -> bool:
    return place.usual and any(
        value is True and (name in READ_ONLY or isinstance(place.holder, Mapping))
        for name, value in _entries(place.holder, READ_ONLY)
    )


def _values(tool: str, places: list[_Place], spellings: tuple[str, ...]) -> list[object]:
    found = []
    for name, value in _named(places, spellings):
        if not isinstance(value, bool):
            message = "annotations of %r: %s is %.64r, not a boolean; it counts as unsafe"
            _LOG.warning(message, tool, name, value)
        found.append(value)
    return found


def _named(places: list[_Place], spellings: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    for place in places:
        yield from _entries(place.holder, spellings)


def _places(declared: object) -> list[_Place]:
    """Return a declaration and what is nested in it, outer ones first; at most `_PLACES` + 1."""
    places: list[_Place] = []
    waiting = deque([_Place(declared, 1, usual=True)])
    seen: dict[tuple[int, bool], object] = {}  # with the holders, so that no id is used again
    while waiting and len(places) <= _PLACES:
        place = waiting.popleft()
        key = id(place.holder), place.usual
        if key in seen or isinstance(place.holder, _PLAIN):
            continue
        seen[key] = place.holder
        if isinstance(place.holder, _LISTS):  # of several hints, each may forbid
            deeper = place.depth + 1
            waiting += (_Place(each, deeper, usual=False) for each in place.holder)
            continue
        places.append(place)
        for name, holder in _entries(place.holder, NESTED + ALSO_NESTED):
            usual = place.usual and name in NESTED and place.depth < _DEPTH
            waiting.append(_Place(holder, place.depth + 1, usual))
    return places


def _entries(holder: object, spellings: tuple[str, ...]) -> list[tuple[str, object]]:
    """Return the keys or attributes of some names, and their values, but None, which is no hint.

    They may be written in any case, with any separators, or a leading `_`.
    """
    if isinstance(holder, Mapping):
        found = [(str(key), value) for key, value in holder.items()]
    else:
        named = {name for name in _listed(holder) if not name.startswith("__")}
        found = [(name, _field(holder, name)) for name in _matching(named, spellings)]
    plain = _plain_names(spellings)
    return [(name, value) for name, value in found if value is not None and _plain(name) in plain]


def _matching(named: Set[str], spellings: tuple[str, ...]) -> list[str]:
    """Return names of attributes: the listed ones that match, and those that may be computed."""
    plain = _plain_names(spellings)
    return sorted({name for name in named if _plain(name) in plain} | _usual_names(spellings))


@cache
def _plain_names(spellings: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_plain, spellings))


@cache
def _usual_names(spellings: tuple[str, ...]) -> frozenset[str]:
    """Return the names under which an attribute may be found that `dir` does not list."""
    camel = [re.sub(r"_(.)", lambda found: found[1].upper(), name) for name in spellings]
    return frozenset(f"{lead}{name}" for name in (*spellings, *camel) for lead in ("", "_"))


@lru_cache(4096)
def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _listed(holder: object) -> list[str]:
    try:
        return dir(holder)
    except Exception:  # then only the usual names are looked at
        return []


def _field(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # a property that raises is not trusted
        return _UNREADABLE
