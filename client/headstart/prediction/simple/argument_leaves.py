"""Arguments of a call as leaves (`flights.0.date`) on a skeleton."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

MOST_LEAVES = 24
"""Calls with more leaves are not learned: they hold a document rather than arguments."""
_INDEX = re.compile(r"\.\d+")


class ArgumentLeaf(NamedTuple):
    """A value that is not an object or list (or an empty one), and its path."""

    path: str
    value: Any


class ArgumentSkeleton(NamedTuple):
    """Arguments without their values; `paths`: of the leaves, in the order of `filled`."""

    shape: Any
    paths: tuple[str, ...]


def leaves_of(arguments: Mapping[str, object]) -> list[ArgumentLeaf]:
    """Return the leaves of arguments, keys in alphabetical order."""
    found: list[ArgumentLeaf] = []
    _collect(arguments, "", found)
    return found


def _collect(value: Any, path: str, found: list[ArgumentLeaf]) -> None:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            _collect(value[key], f"{path}.{key}" if path else key, found)
    elif isinstance(value, list | tuple) and value:
        for index, each in enumerate(value):
            _collect(each, f"{path}.{index}", found)
    else:
        found.append(ArgumentLeaf(path, value))


def skeleton_of(arguments: Mapping[str, object], leaves: list[ArgumentLeaf]) -> ArgumentSkeleton:
    """Return the skeleton of arguments with these leaves."""
    return ArgumentSkeleton(_shape(arguments), tuple(leaf.path for leaf in leaves))


def _shape(value: Any) -> Any:
    if isinstance(value, Mapping) and value:
        return {key: _shape(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple) and value:
        return [_shape(each) for each in value]
    return None


def filled(shape: Any, values: Iterator[Any]) -> Any:
    """Return a skeleton's shape with values in place of its leaves."""
    if isinstance(shape, dict):
        return {key: filled(each, values) for key, each in shape.items()}
    if isinstance(shape, list):
        return [filled(each, values) for each in shape]
    return next(values)


@lru_cache(1 << 14)
def any_index(path: str) -> str:
    """Return a path with `*` in place of its indexes: `flights.*.date`."""
    return _INDEX.sub(".*", path)


def as_key(value: Any) -> Any:
    """Return what equals for equal JSON values only, and can be a key."""
    if isinstance(value, str) or type(value) is int:
        return value
    if isinstance(value, float | bool) or value is None:
        return type(value).__name__, value
    return "json", json.dumps(value, sort_keys=True)
