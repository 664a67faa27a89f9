"""Guesses an agent's next tool call from its last two, learning as the runs go by.

Counts in memory, no clock, no randomness. The learned threshold decides whether a guess is worth
starting; `demo.tool_latency` defines its gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from demo.traces import END

ORDERS: Final = 2
"""How many of the last tools a guess looks at."""

_START: Final = ""
"""Fills the history before a run's first calls, so that a beginning is a context like any other."""


@dataclass(frozen=True, slots=True)
class PredictedTool:
    """The likeliest next tool; `confidence` in [0, 1] is the probability the predictor gives it."""

    tool: str
    confidence: float


class _Counts:
    """How often each tool followed one context: `of` by tool, `total` their sum.

    `leaders` are the tools with the highest count: counts only grow, so one comparison keeps them.
    """

    __slots__ = ("leaders", "of", "total")

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.total = 0
        self.leaders: list[str] = []

    def add(self, tool: str) -> None:
        highest = self.of[self.leaders[0]] if self.leaders else 0
        count = self.of[tool] = self.of.get(tool, 0) + 1
        self.total += 1
        if count > highest:
            self.leaders = [tool]
        elif count == highest:
            self.leaders.append(tool)


class ToolPredictor:
    """Interpolated back-off over the last two tool names, one set of counts per domain.

    P of order k is (count + P of order k-1) / (total + 1), from order 0 (every call of the domain)
    to order 2; below order 0 all tools seen in the domain, and the end, are equally likely. An
    unseen context thus has the probabilities of the order below it. A domain is any text that
    separates the counts.
    """

    def __init__(self) -> None:
        self._domains: dict[str, dict[tuple[str, ...], _Counts]] = {}

    def predict(self, domain: str, history: Sequence[str]) -> PredictedTool | None:
        """Return the guess after `history` (a run's tools so far), None when it is the end.

        Of equally likely tools the first by name wins: a repeated run makes the same guesses.
        """
        orders = self._orders(domain, history)
        if not orders:
            return None
        # P of a lower order is below 1, less than one count: only leaders of the highest can win.
        uniform = _uniform(orders)
        confidence, tool = min((-_probability(t, orders, uniform), t) for t in orders[-1].leaders)
        return None if tool == END else PredictedTool(tool, -confidence)

    def learn(self, domain: str, history: Sequence[str], actual: str) -> None:
        """Count that `actual` (a tool, or `END`) followed `history`."""
        counts = self._domains.setdefault(domain, {})
        for context in _contexts(history):
            if (follow := counts.get(context)) is None:
                follow = counts[context] = _Counts()
            follow.add(actual)

    def probabilities(
        self, domain: str, history: Sequence[str], order: int = ORDERS
    ) -> dict[str, float]:
        """Return P of one order for the end and every tool seen in the domain; they sum to 1."""
        orders = self._orders(domain, history)
        tools = {END: 0, **orders[0].of} if orders else {END: 0}
        uniform = _uniform(orders)
        return {tool: _probability(tool, orders[: order + 1], uniform) for tool in tools}

    def _orders(self, domain: str, history: Sequence[str]) -> list[_Counts]:
        """Return the counts after `history` from order 0 up, as far as its context was seen."""
        counts = self._domains.get(domain, {})
        # If a context is unseen, so are the longer ones, so the result has no gap.
        return [counts[context] for context in _contexts(history) if context in counts]


def _contexts(history: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return what the guesses of order 0, 1 and 2 look at: the last 0, 1 and 2 tools of a run."""
    before, last = (_START, _START, *history[-ORDERS:])[-ORDERS:]
    return (), (last,), (before, last)


def _uniform(orders: Sequence[_Counts]) -> float:
    """Return the probability below order 0; the end is possible before any run has ended."""
    of = orders[0].of if orders else {}
    return 1 / (len(of) + (END not in of))


def _probability(tool: str, orders: Sequence[_Counts], uniform: float) -> float:
    p = uniform
    for follow in orders:
        p = (follow.of.get(tool, 0) + p) / (follow.total + 1)
    return p
