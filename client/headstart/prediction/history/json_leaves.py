"""Takes the arguments of a call apart into leaves, and puts them together again.

A leaf is a value that is not a container, or an empty one. Its path is `flights.0.date`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

MOST_LEAVES: Final = 24
"""Calls with more leaves are learned by the tool's name only."""
DEEPEST: Final = 8
LARGEST_BITS: Final = 256
"""Larger integers are no value that is learned: writing them as text takes long, or is refused."""

Key = str | int | tuple[str, str]
"""A value as a key of a dict, so that 1, 1.0, true and "1" differ, and NaN equals NaN."""

_INDEX: Final = re.compile(r"\.\d+(?=\.|$)")


class Unusable(Exception):
    """Arguments that are not learned: no JSON object, too many leaves, or nested too deeply."""


def value_key(value: object) -> Key | None:
    """Return the key of a leaf's value; None for what JSON has no form for, and huge integers."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[return-value]
    if kind is int:
        return value if value.bit_length() <= LARGEST_BITS else None  # type: ignore
    if kind is float or kind is bool or value is None:
        return kind.__name__, repr(value)
    if kind in (dict, list, tuple) and not value:
        return "empty", "{}" if kind is dict else "[]"
    return None


def key_text(key: Key) -> str:
    """Return a text that differs between any two keys, to be hashed."""
    if isinstance(key, str):
        return key
    return f"\0{key}" if isinstance(key, int) else f"\0{key[0]}\0{key[1]}"


def leaves_of(arguments: object) -> list[tuple[str, object, Key]]:
    """Return path, value and key of each leaf, by path. Raises `Unusable`."""
    if not isinstance(arguments, Mapping):
        raise Unusable
    found: list[tuple[str, object, Key]] = []
    if arguments:
        _collect(dict(arguments), "", found, 0)
    return found


def _collect(value: object, path: str, found: list[tuple[str, object, Key]], depth: int) -> None:
    if isinstance(value, dict) and value:
        for name in _names(value):
            _member(value[name], f"{path}.{name}" if path else name, found, depth)
    elif isinstance(value, list | tuple) and value:
        if len(value) > MOST_LEAVES:
            raise Unusable
        for i, item in enumerate(value):
            _member(item, f"{path}.{i}", found, depth)


def _member(value: object, path: str, found: list[tuple[str, object, Key]], depth: int) -> None:
    if isinstance(value, dict | list | tuple) and value:
        if depth >= DEEPEST:
            raise Unusable
        _collect(value, path, found, depth + 1)
        return
    key = value_key(value)
    if key is None or len(found) >= MOST_LEAVES:
        raise Unusable
    found.append((path, value, key))


def _names(members: dict[object, object]) -> list[str]:
    if len(members) > MOST_LEAVES:
        raise Unusable
    names = [name for name in members if isinstance(name, str)]
    if len(names) < len(members):
        raise Unusable
    return sorted(names)


Structure = Mapping[str, "Structure"] | Sequence["Structure"] | None
"""Arguments without their values: None in the place of each leaf."""


def structure_of(value: object) -> Structure:
    """Return the structure of arguments that `leaves_of()` accepts."""
    if isinstance(value, Mapping) and value:
        return {str(name): structure_of(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple) and value:
        return [structure_of(item) for item in value]
    return None


def filled(structure: Structure, values: Iterator[object]) -> object:
    """Put values, in the order of the leaves, into a structure."""
    if structure is None:
        return next(values)
    if isinstance(structure, Mapping):
        return {name: filled(below, values) for name, below in structure.items()}
    return [filled(below, values) for below in structure]


@lru_cache(maxsize=2_048)
def any_index(path: str) -> str:
    """Return a path with `*` for each index of a list: `flights.*.date`."""
    return _INDEX.sub(".*", path)
