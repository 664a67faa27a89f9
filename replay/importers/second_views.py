"""Spans inside a call that are another view of the same call, of another instrumentation.

An agent's framework, the client of a tool server, and the server trace one call inside each other.
A tool that calls itself, or other calls of its own, looks alike; it differs in its call ids or
arguments, or in how many calls are inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from headstart.events.exact_json import dump_exactly
from replay.importers.model_answers import call_id
from replay.importers.span import Span

_SEPARATORS: Final = ("_", "-", ".", "/", ":")
_MOST_LEVELS: Final = 200

Parent = Callable[[Span], Span | None]
"""Returns the span that a span is in, None if it is not known."""


class SecondViews:
    """Which spans are another view of the call that they are in: of each call one at most, and
    whatever has its id."""

    def __init__(self, spans: Iterable[Span], parent: Parent) -> None:
        self._parent = parent
        self._views: dict[int, list[Span]] = {}
        """All views of a call, by the identity of each."""
        self._inner: set[int] = set()
        inside = [
            (span, above)
            for span in spans
            if span.tool and (above := self._call_around(span)) is not None
            if span.served or _same_tool(span.tool, above.tool)
        ]
        # From the outermost on, so that a view is compared with all views around it.
        inside.sort(key=lambda pair: (self._depth(pair[0]), *_likeness(*pair)))
        taken = set[int]()
        for span, above in inside:
            views = self._views.setdefault(id(above), [above])
            own = self._views.get(id(span), [span])
            if own is views or any(_contradict(one, other) for one in views for other in own):
                continue
            if id(above) in taken and not _same_id(span, above):
                continue
            taken.add(id(above))
            self._inner.add(id(span))
            views += own
            for each in own:
                self._views[id(each)] = views

    def __contains__(self, span: Span) -> bool:
        return id(span) in self._inner

    def _call_around(self, span: Span) -> Span | None:
        """Return the call that a span is in, None for one in a step of an agent in a call."""
        above, levels = self._parent(span), 0
        while above is not None and above is not span and levels < _MOST_LEVELS:
            if above.tool:
                return above
            if above.step:
                return None
            above, levels = self._parent(above), levels + 1
        return None

    def _depth(self, span: Span) -> int:
        above, depth = self._parent(span), 0
        while above is not None and depth < _MOST_LEVELS:
            above, depth = self._parent(above), depth + 1
        return depth


def _likeness(span: Span, above: Span) -> tuple[bool, bool, int, str]:
    """Return what sorts the likeliest view of a call first."""
    one, other = _arguments(span), _arguments(above)
    equal = one is not None and one == other
    return not _same_id(span, above), not equal, span.begin or 0, span.order


def _same_tool(inner: str, outer: str) -> bool:
    return inner == outer or any(outer.endswith(each + inner) for each in _SEPARATORS)


def _same_id(one: Span, other: Span) -> bool:
    return call_id(one) != "" and call_id(one) == call_id(other)


def _contradict(one: Span, other: Span) -> bool:
    """Return whether ids or arguments differ where both are known.

    Only arguments of the same name: an instrumentation may add defaults, or wrap them.
    """
    ids = call_id(one), call_id(other)
    if "" not in ids:
        return ids[0] != ids[1]
    first, second = _arguments(one) or {}, _arguments(other) or {}
    return any(_text(first[name]) != _text(second[name]) for name in first.keys() & second.keys())


def _arguments(span: Span) -> dict[str, Any] | None:
    return span.content.arguments if span.content is not None else None


def _text(value: Any) -> str:
    """Return a value as text: an instrumentation may record a number or an object as a text."""
    return value if isinstance(value, str) else dump_exactly(value).decode()
