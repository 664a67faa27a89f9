"""Draws numbers as text: a sparkline, and a plot of several lines. Pure.

Uses block characters, or ASCII for terminals without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII: Final = "_.-=+*#@"


def sparkline(
    values: Sequence[float],
    width: int,
    *,
    ascii_only: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """Return the last `width` values at most, as one character each.

    The scale is from the lowest to the highest, or `low` to `high`; equal values are drawn in the
    middle.
    """
    marks = ASCII if ascii_only else BLOCKS
    shown = values[-width:] if width > 0 else ()
    if not shown:
        return ""
    bottom = min(shown) if low is None else low
    top = max(shown) if high is None else high
    return "".join(marks[_step(value, bottom, top, len(marks))] for value in shown)


def _step(value: float, bottom: float, top: float, steps: int) -> int:
    if not top > bottom:
        return steps // 2
    share = (value - bottom) / (top - bottom)
    return min(steps - 1, max(0, int(share * steps)))


def plot(
    values: Sequence[float], width: int, height: int, *, ascii_only: bool = False
) -> list[str]:
    """Return `height` lines of a column per value, at most `width`, with the scale on the left.

    More values than columns are averaged, so that all are shown.
    """
    scale_width = 6
    columns = max(1, width - scale_width - 1)
    shown = averaged(values, columns)
    if not shown or height < 1:
        return []
    bottom, top = min(shown), max(shown)
    if not top > bottom:
        bottom, top = bottom - 0.05, top + 0.05
    mark = "*" if ascii_only else "●"
    bar = "|" if ascii_only else "│"
    rows = [_step(value, bottom, top, height) for value in shown]
    lines = []
    for row in range(height - 1, -1, -1):
        at = bottom + (top - bottom) * (row + 0.5) / height
        cells = "".join(mark if place == row else " " for place in rows).rstrip()
        lines.append(f"{at:{scale_width}.3f}{bar}{cells}"[:width])
    return lines


def averaged(values: Sequence[float], columns: int) -> list[float]:
    """Return at most `columns` values, each the mean of its share of them."""
    count = len(values)
    if count <= columns:
        return list(values)
    edges = [count * place // columns for place in range(columns + 1)]
    return [sum(values[begin:end]) / (end - begin) for begin, end in pairwise(edges)]
