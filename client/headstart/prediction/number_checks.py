"""Checks of the numbers and tables of a state; each raises `ValueError`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sized
from math import isfinite
from typing import Any, Final

from headstart.prediction.bounded_tables import RecentTable
from headstart.prediction.stable_hash import MASK

LARGEST_WEIGHT: Final = 10_000.0
"""Far beyond what learning gives, and sums of such weights are finite."""
_LARGEST_COUNT: Final = (1 << 53) - 1


def require(right: bool, what: str) -> None:
    """Raise `ValueError` with what is not right."""
    if not right:
        raise ValueError(f"{what}: not within bounds")


def require_counts(values: Collection[Any], what: str, most: int = _LARGEST_COUNT) -> None:
    """Require integers from 0 to `most`; of hashes, `most` is `MASK`."""
    if values:
        require(set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= most, what)


def require_hashes(values: Collection[Any], what: str) -> None:
    """Require hashes of 60 bits."""
    require_counts(values, what, MASK)


def require_weights(values: Collection[Any], like: Sized, what: str) -> None:
    """Require as many finite numbers as there are in `like`."""
    require(len(values) == len(like), what)
    require(set(map(type, values)) <= {int, float}, what)
    require(all(isfinite(each) and abs(each) <= LARGEST_WEIGHT for each in values), what)


def checked_values(table: RecentTable[Any], what: str) -> Iterator[Any]:
    """Yield the values of a table whose keys and sizes are right."""
    for generation in (table.old, table.young):
        require_hashes(generation, what)
        require(len(generation) <= table.half, what)
        yield from generation.values()
    require_counts([table.weight], what, table.half)
