"""The model's calls of a run: which of them a tool's call comes from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from replay.importers.span import Span
from topics.spans.content import NamedCall


class ModelAnswers:
    """The model's calls in the order of their ends, with the calls that they answered with."""

    def __init__(self, around: Iterable[Span]) -> None:
        """`around`: spans with messages; those that are not a model's are left out."""
        self.models: Sequence[Span] = sorted((each for each in around if each.is_model), key=_end)
        self._by_call: dict[str, list[int]] = {}
        self._by_tool: dict[str, list[tuple[int, NamedCall]]] = {}
        for index, model in enumerate(self.models):
            for call in model.messages.calls if model.messages is not None else ():
                if call.call:
                    self._by_call.setdefault(call.call, []).append(index)
                self._by_tool.setdefault(call.tool, []).append((index, call))

    def before(self, call: Span) -> int | None:
        """Return the index of the model's call that a call comes from, None if it is not known.

        By the id of the call in the answer, else the one that ended last before it.
        """
        count = self._ended(call)
        own = self._by_call.get(call_id(call), ())
        if place := bisect_right(own, count - 1):
            return own[place - 1]
        return count - 1 if count else None

    def named(self, call: Span) -> Iterator[NamedCall]:
        """Yield the calls of the same tool that were answered before, the latest first."""
        answered = self._by_tool.get(call.tool, [])
        count = bisect_right(answered, self._ended(call) - 1, key=lambda each: each[0])
        yield from (answered[n][1] for n in range(count - 1, -1, -1))

    def _ended(self, call: Span) -> int:
        return bisect_right(self.models, call.begin or 0, key=_end)


def _end(span: Span) -> int:
    return span.end if span.end is not None else span.begin or 0


def call_id(call: Span) -> str:
    """Return the model's id of a call, "" if neither its span nor its result has one."""
    return call.call or (call.content.call if call.content is not None else "")
