"""Calls of tools among the spans of traces, and the runs that they make.

A span may be exported twice, in parts, and out of order, over several files: the version of an id
that is complete wins, else the last. A call may be traced twice, by the agent's instrumentation and
by the tool's own: the outer one counts. Not here: what a span is in a tool's own form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from replay.files.times import LONGEST_CALL_MS
from replay.importers.agent_runs import NO_NAME, Run, Unmapped, run_of, step_of

_SEPARATORS: Final = ("_", "-", ".", "/", ":")
_MOST_LEVELS: Final = 200


@dataclass(slots=True)
class Span:
    """One span. `tool`: of a call, its tool's name; `place`: where it stands.

    `id`, `parent`: "" where they are not known; `begin`, `end`: Unix ms. `step`: whether it is a
    step of an agent that is no call (a model's answer, a chain), so that what is below it is not
    another view of the call above. `served`: whether it is a tool server's own view of a call.
    `call`: the model's id of the call, `order`: tells spans of one begin apart. `leaf`: the tool's
    name of what is a call where no other span is inside it.
    """

    trace: str
    id: str = ""
    parent: str = ""
    tool: str = ""
    begin: int | None = None
    end: int | None = None
    error: bool = False
    step: bool = False
    served: bool = False
    call: str = ""
    order: str = ""
    leaf: str = ""


@dataclass(slots=True)
class Trace:
    """What spans say of their trace: whose it is, and which conversations and users it is of."""

    domain: str = ""
    model: str = ""
    conversations: dict[str, None] = field(default_factory=dict)
    users: dict[str, None] = field(default_factory=dict)

    @property
    def conversation(self) -> tuple[str, str]:
        """Its domain and its conversation, "" where it has none, or several: none is its own."""
        (own,) = self.conversations if len(self.conversations) == 1 else ("",)
        return self.domain, own


@dataclass
class Spans:
    """The spans of all files of one import. `kind`: what people call several of them."""

    kind: str
    unmapped: Unmapped
    traces: dict[str, Trace] = field(default_factory=dict)
    _known: dict[tuple[str, str], Span] = field(default_factory=dict)
    _nameless: list[Span] = field(default_factory=list)

    def trace(self, name: str) -> Trace:
        """Return what is known of a trace, to add to it."""
        return self.traces.setdefault(name, Trace())

    def add(self, span: Span) -> None:
        """Add a span, or another version of one."""
        if span.begin is not None and span.end is not None and span.end < span.begin:
            self.unmapped.add(f"ends of {self.kind} before their start")
            span.end = None
        if (
            span.begin is not None
            and span.end is not None
            and span.end - span.begin > LONGEST_CALL_MS  # the reader of runs refuses it
        ):
            if span.tool or span.leaf:
                self.unmapped.add(f"ends of {self.kind} more than 24 hours after their start")
            span.end = None
        if NO_NAME in (span.tool, span.leaf):
            self.unmapped.add(f"{self.kind} named {NO_NAME}, which means the end of a run")
            span.tool = span.leaf = ""
        if not span.id:
            span.tool = span.tool or span.leaf
            if span.tool:
                self._nameless.append(span)
            return
        key = (span.trace, span.id)
        known = self._known.get(key)
        if known is None:
            self._known[key] = span
            return
        self.unmapped.duplicates[self.kind] += bool(span.tool or span.leaf or known.tool)
        if _complete(span) >= _complete(known):
            self._known[key] = span

    def runs(self, source: str) -> Iterator[Run]:
        """Yield a run for each conversation, or trace that belongs to none, that has calls."""
        outer = {(span.trace, span.parent) for span in self._known.values()}
        for key, span in self._known.items():
            if span.leaf and key not in outer:
                span.tool = span.tool or span.leaf
        grouped: dict[str, list[Span]] = {name: [] for name in self.traces}
        for span in (*self._known.values(), *self._nameless):
            if span.tool and not self._is_seen_twice(span):
                grouped.setdefault(span.trace, []).append(span)
        for name, spans in self._by_conversation(grouped).items():
            spans.sort(key=lambda span: (span.begin or 0, span.order))
            whose = [self.trace(trace) for trace in dict.fromkeys(span.trace for span in spans)]
            domain = next((each.domain for each in whose if each.domain), None)
            model = next((each.model for each in whose if each.model), None)
            yield run_of(source, domain, model, name, [*map(_step, self._once(spans))])

    def _by_conversation(self, grouped: dict[str, list[Span]]) -> dict[str, list[Span]]:
        found: dict[tuple[str, ...], tuple[str, list[Span]]] = {}
        users: dict[tuple[str, str], set[str]] = {}
        for trace in self.traces.values():
            users.setdefault(trace.conversation, set()).update(trace.users)
        for name, spans in grouped.items():
            if spans:
                trace = self.trace(name)
                domain, own = trace.conversation
                every = users[domain, own]
                # A trace that names no user is of the only one that its conversation has.
                whose = trace.users or (every if len(every) == 1 else ())
                key = (domain, own, *sorted(whose)) if own else ("", f"\0{name}")
                found.setdefault(key, (own or name, []))[1].extend(spans)
        named: dict[str, list[Span]] = {}
        for name, spans in found.values():
            while name in named:
                name += "+"  # noqa: PLW2901 - the same id of another service or user
            named[name] = spans
        return named

    def _is_seen_twice(self, span: Span) -> bool:
        """Return whether a call is another view of the call that it is in."""
        above, levels = self._known.get((span.trace, span.parent)), 0
        while above is not None and above is not span and levels < _MOST_LEVELS:
            if above.tool:
                twice = span.served or _same(span.tool, above.tool)
                if twice:
                    self.unmapped.add(f"{self.kind} inside the same call")
                return twice
            if above.step:
                return False
            above, levels = self._known.get((span.trace, above.parent)), levels + 1
        return False

    def _once(self, spans: list[Span]) -> Iterator[Span]:
        """Yield calls without those that two instrumentations say side by side."""
        last: dict[tuple[str, str], int | None] = {}
        for span in spans:
            key = (span.call, span.tool)
            if span.call and key in last and _overlaps(last[key], span):
                self.unmapped.add(f"{self.kind} of the same call")
                continue
            last[key] = span.end
            yield span


def _complete(span: Span) -> tuple[bool, bool]:
    return bool(span.tool or span.leaf), span.end is not None


def _same(inner: str, outer: str) -> bool:
    return inner == outer or any(outer.endswith(each + inner) for each in _SEPARATORS)


def _overlaps(end: int | None, later: Span) -> bool:
    return end is not None and later.begin is not None and later.begin < end


def _step(span: Span) -> dict[str, Any]:
    return step_of(span.tool, span.begin, span.end, error=span.error)
