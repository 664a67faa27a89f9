"""Checks options at construction: a misspelled safety option must not be ignored silently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headstart.arguments.checks import InvalidArgument

_PRIMITIVE: Final = str | bytes | bytearray | bool | int | float


def names_in(option: str, given: object) -> frozenset[str]:
    """Return an option's names. Raises `InvalidArgument` if it is not a collection of names."""
    if isinstance(given, _PRIMITIVE | Mapping) or not isinstance(given, Iterable):
        fix = f"{{{given!r:.64}}}" if isinstance(given, str) else 'such as {"search"}'
        raise InvalidArgument(f"{option}: a collection of names, {fix}, not {given!r:.64}")
    names = list(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"{option}: each name is a non-empty string, not {name!r:.64}")
    return frozenset(names)


def by_tool(option: str, given: object) -> dict[str, object]:
    """Return an option's values by tool. Raises `InvalidArgument` if it is not such a mapping."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise InvalidArgument(f"{option}: a mapping of tool names to annotations, not {kind}")
    for tool, hints in given.items():
        if not isinstance(tool, str) or not tool:
            raise InvalidArgument(f"{option}: each key is the name of a tool, not {tool!r:.64}")
        if isinstance(hints, _PRIMITIVE | list | tuple | set | frozenset):
            raise InvalidArgument(
                f"{option} of {tool!r:.64}: a mapping or an object with hints, not {hints!r:.64}"
            )
    return dict(given)
