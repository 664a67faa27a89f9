"""Interpolated back-off over the last events of a run: how likely each tool, or a reply, is next.

P of order k is (count + P of order k-1) / (total + 1); below order 0 all are equally likely
(Jelinek and Mercer 1980, with a weight of one observation).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REPLY: Final = ""
"""Stands for a reply: the model answers without a call."""
START: Final = "^"
"""Fills the events before a run's first ones."""
_MOST_CONTEXTS: Final = 40_000


class ToolNames:
    """Counts of what followed the last 0 to `order` events."""

    def __init__(self, order: int) -> None:
        self.order = order
        self._counts: dict[tuple[str, ...], dict[str, int]] = {}

    def probabilities(self, events: Sequence[str]) -> dict[str, float]:
        """Return P of every tool seen so far and of a reply after some events."""
        symbols = self._counts.get((), {})
        found = dict.fromkeys(symbols, 1 / (len(symbols) + 1))
        for context in self._contexts(events):
            counts = self._counts.get(context)
            if counts is None:
                break
            total = sum(counts.values()) + 1
            found = {each: (counts.get(each, 0) + p) / total for each, p in found.items()}
        return found

    def learn(self, events: Sequence[str], actual: str) -> None:
        """Count that a tool, or `REPLY`, followed some events."""
        for context in self._contexts(events):
            counts = self._counts.get(context)
            if counts is None:
                if len(self._counts) >= _MOST_CONTEXTS:
                    del self._counts[next(each for each in self._counts if each)]
                counts = self._counts[context] = {}
            counts[actual] = counts.get(actual, 0) + 1

    def _contexts(self, events: Sequence[str]) -> list[tuple[str, ...]]:
        padded = (*[START] * self.order, *events[max(0, len(events) - self.order) :])
        return [tuple(padded[len(padded) - length :]) for length in range(self.order + 1)]


def likeliest(probabilities: dict[str, float], limit: int) -> list[str]:
    """Return the likeliest tools, best first; of equally likely ones the first by name."""
    tools = (tool for tool in probabilities if tool != REPLY)
    return sorted(tools, key=lambda tool: (-probabilities[tool], tool))[:limit]
