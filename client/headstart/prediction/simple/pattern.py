"""`PatternPredictor`: patterns of the last events, and where the arguments come from.

As PASTE (arXiv 2603.18897) describes it, learned online: a pattern is a context C of the last one
to three events with their status, or of two with a gap, a tool T, mappings f of its arguments, and
p, the share of the occurrences of C in which T with f would have been right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.prediction.simple.argument_mappings import ArgumentMappings
from headstart.prediction.simple.shown_run import ShownRun
from headstart.prediction.simple.tool_names import REPLY, START

_ORDER: Final = 3
_GAP: Final = "*"
_SUPPORT: Final = 2
"""Least occurrences of a context that is used."""
_MOST_CONTEXTS: Final = 40_000
_Patterns = dict[tuple[str, ...], dict[str, int]]


class PatternPredictor:
    """Patterns with argument mappings; the tables are bounded and drop what is oldest."""

    def __init__(self) -> None:
        self._patterns: _Patterns = {}
        self._mappings = ArgumentMappings()

    def run(self, *, agent: str = "", user_id: str = "") -> PatternRun:  # noqa: ARG002
        """Return the predictor of a new run."""
        return PatternRun(self._patterns, self._mappings)


class PatternRun(ShownRun):
    """One run of a `PatternPredictor`."""

    def __init__(self, patterns: _Patterns, mappings: ArgumentMappings) -> None:
        super().__init__(mappings)
        self._patterns = patterns

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the tools of the surest patterns, with their likeliest arguments."""
        tools = self._tools()
        found = []
        for tool in sorted(tools, key=lambda each: (-tools[each][0], each))[:limit]:
            share, support = tools[tool]
            arguments = self.mappings.guess(self.values, tool)
            if arguments is not None:
                evidence = Evidence(
                    min(support, arguments.tries), share, arguments.probability, 0, "arguments"
                )
                confidence = share * arguments.probability
                found.append(PredictedCall(tool, arguments.arguments, confidence, evidence))
        return sorted(found, key=lambda each: (-each.confidence, each.tool))

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn what followed the last events, and the arguments."""
        actual = calls[0].tool if calls else REPLY
        for context in _contexts(self.events):
            counts = self._patterns.get(context)
            if counts is None:
                if len(self._patterns) >= _MOST_CONTEXTS:
                    del self._patterns[next(iter(self._patterns))]
                counts = self._patterns[context] = {}
            counts[actual] = counts.get(actual, 0) + 1
        super().calls(calls)

    def _tools(self) -> dict[str, tuple[float, int]]:
        """Return each tool's highest share among the contexts that hold now, and its support."""
        found: dict[str, tuple[float, int]] = {}
        for context in _contexts(self.events):
            counts = self._patterns.get(context, {})
            total = sum(counts.values())
            if total < _SUPPORT:
                continue
            for tool, count in counts.items():
                if tool != REPLY and count / total > found.get(tool, (-1.0, 0))[0]:
                    found[tool] = count / total, total
        return found


def _contexts(events: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the contexts of the last events, and those with a gap."""
    third, second, last = (*[START] * _ORDER, *events[-_ORDER:])[-_ORDER:]
    return [
        (last,), (second, last), (third, second, last), (_GAP, third, last), (_GAP, second),
    ]  # fmt: skip
