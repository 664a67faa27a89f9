"""Charts as SVG text, for pages that need nothing from anywhere: lines, columns, marks, legends.

Colours and fonts are the page's (`page.css`), so that a chart follows light and dark. Drawn 400
units wide, which a phone shows as they are. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH: Final = 400
HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 8, 8, 34


@dataclass(frozen=True)
class ChartLine:
    """A line by its points; `kind` is a class of `page.css`: c0 to c7, live, ideal, quiet."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str
    dots: bool = False


@dataclass(frozen=True)
class Mark:
    """A vertical mark with a tooltip."""

    x: float
    words: str
    kind: str = "drift"


@dataclass(frozen=True)
class Column:
    """A filled box between two places on each axis; `kind` is a class of `page.css`."""

    across: tuple[float, float]
    up: tuple[float, float]
    words: str
    kind: str = "c1"


@dataclass(frozen=True)
class Axis:
    """One axis: its name, its ends, and how its ticks are written."""

    name: str
    low: float
    high: float
    write: Callable[[float], str]
    ticks: Sequence[float] = field(default_factory=tuple)

    def place(self, value: float) -> float:
        """Return where a value lies, 0 to 1; what is outside lies at an end."""
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.5


def chart(
    across: Axis,
    up: Axis,
    lines: Sequence[ChartLine],
    marks: Sequence[Mark] = (),
    columns: Sequence[Column] = (),
) -> str:
    """Return an SVG of columns, marks and lines over two axes; what is drawn last lies on top."""
    wide, tall = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> float:
        return round(_LEFT + across.place(value) * wide, 1)

    def y(value: float) -> float:
        return round(_TOP + (1.0 - up.place(value)) * tall, 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(up.name)} over {escape(across.name)}">'
    ]
    for tick in up.ticks or nice_ticks(up.low, up.high):
        parts.append(
            f'<path class="rule" d="M{_LEFT} {y(tick)}h{wide}"/><text class="tick" x="{_LEFT - 5}" '
            f'y="{y(tick) + 3.5}" text-anchor="end">{escape(up.write(tick))}</text>'
        )
    for tick in across.ticks or nice_ticks(across.low, across.high):
        # At the right edge there is no room for the half of a text.
        anchor = "end" if across.place(tick) > 0.97 else "middle"
        parts.append(
            f'<text class="tick" x="{x(tick)}" y="{HEIGHT - _BOTTOM + 14}" '
            f'text-anchor="{anchor}">{escape(across.write(tick))}</text>'
        )
    parts.append(
        f'<text class="axis" x="{_LEFT + wide / 2}" y="{HEIGHT - 4}" '
        f'text-anchor="middle">{escape(across.name)}</text>'
    )
    middle = _TOP + tall / 2
    parts.append(
        f'<text class="axis" x="10" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 10 {middle})">{escape(up.name)}</text>'
    )
    for each in columns:
        left, right = sorted(map(x, each.across))
        top, bottom = sorted(map(y, each.up))
        parts.append(
            f'<rect class="column {each.kind}" x="{left}" y="{top}" width="{right - left:.1f}" '
            f'height="{bottom - top:.1f}"><title>{escape(each.words)}</title></rect>'
        )
    for mark in marks:
        parts.append(
            f'<path class="mark {mark.kind}" d="M{x(mark.x)} {_TOP}v{tall}">'
            f"<title>{escape(mark.words)}</title></path>"
        )
    parts += [_drawn(line, x, y) for line in lines]
    return "".join([*parts, "</svg>"])


def _drawn(line: ChartLine, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    at = " ".join(f"{x(a)},{y(b)}" for a, b in line.points)
    title = f"<title>{escape(line.name)}</title>"
    drawn = f'<polyline class="line {line.kind}" points="{at}">{title}</polyline>'
    if line.dots:
        drawn += "".join(
            f'<circle class="dot {line.kind}" cx="{x(a)}" cy="{y(b)}" r="2.5">'
            f"<title>{escape(line.name)}: {a:.2f}, {b:.2f}</title></circle>"
            for a, b in line.points
        )
    return drawn


def legend(lines: Sequence[ChartLine]) -> str:
    """Return the names of lines with their colours."""
    names = "".join(
        f'<li><svg viewBox="0 0 18 8" aria-hidden="true"><path class="line {line.kind}" '
        f'd="M1 4h16"/></svg>{escape(line.name)}</li>'
        for line in lines
    )
    return f'<ul class="legend">{names}</ul>'


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round values within a range."""
    span = high - low
    if not span > 0:
        return [low]
    step = 10.0 ** floor(log10(span / count))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= count)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]
