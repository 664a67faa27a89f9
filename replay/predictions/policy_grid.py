"""The policies to run: specifications and grids of settings, with a hint at misspelt names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import product
from typing import Final

from learners.registry import POLICIES, policy

MOST: Final = 200
_RANGE: Final = re.compile(r"(?P<low>[^.]*\.?[^.]*)\.\.(?P<high>.+)x(?P<count>[0-9]+)")


class TooMany(ValueError):
    """More policies than one pass can hold."""


def chosen(policies: Sequence[str], grids: Sequence[str] = ()) -> list[str]:
    """Return the specifications of policies and grids, each once, in order.

    Raises `LookupError` where there is no such policy, naming the nearest, and `ValueError` at a
    wrong setting.
    """
    found = dict.fromkeys([*policies, *(each for grid in grids for each in expand(grid))])
    if len(found) > MOST:
        raise TooMany(f"{len(found)} policies; at most {MOST} go into one pass: use fewer steps")
    for each in found:
        check(each)
    return list(found)


def check(specification: str) -> None:
    """Raise where a specification names no policy, or a wrong setting."""
    try:
        policy(specification)
    except LookupError as error:
        name = specification.partition(":")[0].strip()
        near = get_close_matches(name.lower(), POLICIES, 1, 0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise LookupError(f"{error.args[0]}{hint}") from None


def expand(grid: str) -> list[str]:
    """Return the policies of a grid: `ema:alpha=.05..0.5x8,target=.8..0.9x3` are 24.

    `LOW..HIGHxN`: N values evenly from LOW to HIGH, both included. A setting without `..` is kept.
    Raises `ValueError`.
    """
    name, sign, settings = grid.partition(":")
    if not sign or ".." not in settings:
        raise ValueError(f"grid {grid!r}: give POLICY:SETTING=LOW..HIGHxN, as ema:alpha=.05..0.5x8")
    columns = []
    for setting in settings.split(","):
        key, _, text = setting.partition("=")
        columns.append([f"{key.strip()}={value}" for value in _values(grid, text.strip())])
    total = 1
    for column in columns:
        total *= len(column)
    if total > MOST:
        raise TooMany(f"grid {grid!r} has {total} policies, at most {MOST} go into one pass")
    return [f"{name}:{','.join(row)}" for row in product(*columns)]


def _values(grid: str, text: str) -> list[str]:
    if ".." not in text:
        return [text]
    found = _RANGE.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        low, high, count = float(found["low"]), float(found["high"]), int(found["count"])
    except ValueError:
        raise ValueError(f"grid {grid!r}: {text!r} is not LOW..HIGHxN, as .05..0.5x8") from None
    if not 2 <= count <= MOST:
        raise ValueError(f"grid {grid!r}: x{count} must be x2 to x{MOST}")
    whole = low.is_integer() and high.is_integer() and (high - low) % (count - 1) == 0
    step = (high - low) / (count - 1)
    values = [low + step * place for place in range(count)]
    return [f"{value:g}" if not whole else str(int(value)) for value in values]
