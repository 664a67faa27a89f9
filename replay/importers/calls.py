"""Calls of tools among the spans of traces, and the runs that they make.

A span may be exported twice, in parts, and out of order, over several files: the version of an id
that is complete wins, else the last. A call may be traced twice, by the agent's instrumentation and
by the tool's own: the outer one counts (`second_views`). Not here: the forms of each tool, and the
content of a run's steps (`run_steps`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from replay.files.times import LONGEST_CALL_MS
from replay.importers.agent_runs import NO_NAME, Run, Unmapped, run_of
from replay.importers.run_steps import described_steps
from replay.importers.second_views import SecondViews
from replay.importers.span import Span
from topics.spans.conversation import Message


@dataclass(slots=True)
class Trace:
    """The properties of a trace that its spans name: domain, model, conversations, users."""

    domain: str = ""
    model: str = ""
    conversations: dict[str, None] = field(default_factory=dict)
    users: dict[str, None] = field(default_factory=dict)

    @property
    def conversation(self) -> tuple[str, str]:
        """Its domain and its conversation; "" if it has none, or several."""
        (own,) = self.conversations if len(self.conversations) == 1 else ("",)
        return self.domain, own


@dataclass
class Spans:
    """The spans of all files of one import. `kind`: their name in messages, plural."""

    kind: str
    unmapped: Unmapped
    traces: dict[str, Trace] = field(default_factory=dict)
    _known: dict[tuple[str, str], Span] = field(default_factory=dict)
    _nameless: list[Span] = field(default_factory=list)
    _messages: dict[Message, Message] = field(default_factory=dict)
    """Every model's call repeats the conversation: each message is held once."""

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
        for reason in span.content.left_out if span.content is not None else ():
            self.unmapped.add(reason)
        if span.messages is not None:
            once = self._messages.setdefault
            for messages in (span.messages.given, span.messages.answered):
                messages[:] = [once(each, each) for each in messages]
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
        models: dict[str, list[Span]] = {}
        twice = SecondViews((*self._known.values(), *self._nameless), self._parent)
        for span in (*self._known.values(), *self._nameless):
            if span.messages is not None:
                models.setdefault(span.trace, []).append(span)
            if span in twice:
                self.unmapped.add(f"{self.kind} inside the same call")
            elif span.tool:
                grouped.setdefault(span.trace, []).append(span)
                above = self._parent(span)
                span.named_above = above.named if above is not None else ()
        for name, spans in self._by_conversation(grouped).items():
            spans.sort(key=lambda span: (span.begin or 0, span.order))
            traces = [*dict.fromkeys(span.trace for span in spans)]
            owners = [self.trace(trace) for trace in traces]
            domain = next((each.domain for each in owners if each.domain), None)
            model = next((each.model for each in owners if each.model), None)
            talk = [each for trace in traces for each in models.get(trace, ())]
            steps, after = described_steps([*self._once(spans)], talk, self.unmapped)
            yield {**run_of(source, domain, model, name, steps), **after}

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
                owners = trace.users or (every if len(every) == 1 else ())
                key = (domain, own, *sorted(owners)) if own else ("", f"\0{name}")
                found.setdefault(key, (own or name, []))[1].extend(spans)
        named: dict[str, list[Span]] = {}
        for name, spans in found.values():
            while name in named:
                name += "+"  # noqa: PLW2901 - the same id of another service or user
            named[name] = spans
        return named

    def _parent(self, span: Span) -> Span | None:
        return self._known.get((span.trace, span.parent))

    def _once(self, spans: list[Span]) -> Iterator[Span]:
        """Yield calls without those that two instrumentations record side by side.

        Ids may be used again, but not while their call runs. A guess ends before the call that it
        answered begins.
        """
        last: dict[tuple[str, str], Span] = {}
        for span in spans:
            key = (span.call, span.tool)
            first = last.get(key) if span.call else None
            answered = first is not None and first.guessed and not span.guessed
            if first is None or not (answered or _overlaps(first, span)):
                last[key] = span
                yield span
                continue
            self.unmapped.add(f"{self.kind} of the same call")
            if answered:  # once
                last[key] = span


def _complete(span: Span) -> tuple[bool, bool]:
    return bool(span.tool or span.leaf), span.end is not None


def _overlaps(first: Span, later: Span) -> bool:
    return first.end is not None and later.begin is not None and later.begin < first.end
