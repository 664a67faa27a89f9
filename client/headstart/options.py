"""Options checked when an object is made: a misspelt safety option must not be dropped silently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Final

_PRIMITIVE: Final = str | bytes | bytearray | bool | int | float


class InvalidOption(TypeError, ValueError):
    """An option is unknown, or its value cannot be used; the message names it and the fix.

    A `TypeError`, as for every wrong keyword, and a `ValueError`, as for every wrong value.
    """


def known_only(given: Mapping[str, object], known: Iterable[str], owner: str) -> None:
    """Raise `InvalidOption` for the first option of `owner` that is not known."""
    names = sorted(known)
    for name in given:
        if name not in names:
            from difflib import get_close_matches  # only needed for the message

            near = get_close_matches(name, names, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise InvalidOption(f"{owner} has no option {name!r}; {meant}known: {', '.join(names)}")


def names_in(option: str, given: object) -> frozenset[str]:
    """Return an option's names. Raises `InvalidOption` where it is no collection of names."""
    if isinstance(given, _PRIMITIVE | Mapping) or not isinstance(given, Iterable):
        fix = f"{{{given!r:.64}}}" if isinstance(given, str) else 'such as {"search"}'
        raise InvalidOption(f"{option}: a collection of names, {fix}, not {given!r:.64}")
    names = list(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidOption(f"{option}: each name is a non-empty string, not {name!r:.64}")
    return frozenset(names)


def number(option: str, given: object, least: float, most: float, unit: str) -> float:
    """Return an option's number within [least, most]. Raises `InvalidOption`; NaN is none."""
    real = isinstance(given, Real) and not isinstance(given, bool)
    if not real or not least <= (found := float(given)) <= most:  # type: ignore[arg-type]
        raise InvalidOption(f"{option}: {unit}, not {given!r:.64}")
    return found


def by_tool(option: str, given: object) -> dict[str, object]:
    """Return what an option says by tool. Raises `InvalidOption` where it is no such mapping."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise InvalidOption(f"{option}: a mapping of tool names to annotations, not {kind}")
    for tool, said in given.items():
        if not isinstance(tool, str) or not tool:
            raise InvalidOption(f"{option}: each key is the name of a tool, not {tool!r:.64}")
        if isinstance(said, _PRIMITIVE | list | tuple | set | frozenset):
            raise InvalidOption(
                f"{option} of {tool!r:.64}: a mapping or an object with hints, not {said!r:.64}"
            )
    return dict(given)
