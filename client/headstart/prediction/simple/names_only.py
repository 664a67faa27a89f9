"""`NamesOnlyPredictor`: guesses the next tool from the last two, and no arguments."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.prediction.simple.tool_names import REPLY, ToolNames, likeliest


class NamesOnlyPredictor:
    """The predictor of `headstart demo` without arguments: right only for calls that have none."""

    def __init__(self, order: int = 2) -> None:
        self._names = ToolNames(order)

    def run(self, *, agent: str = "", user_id: str = "") -> NamesOnlyRun:  # noqa: ARG002
        """Return the predictor of a new run."""
        return NamesOnlyRun(self._names)


class NamesOnlyRun:
    """One run of a `NamesOnlyPredictor`."""

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._tools: list[str] = []

    def user(self, text: str) -> None:
        """Ignore a message of the user."""

    def said(self, text: str) -> None:
        """Ignore a message of the agent."""

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Ignore what a call returned."""

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the likeliest tools, with no arguments."""
        found = self._names.probabilities(self._tools)
        return [
            PredictedCall(tool, {}, found[tool], Evidence(0, found[tool], 0.0, 0, "name"))
            for tool in likeliest(found, limit)
        ]

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn the name of the first call."""
        self._names.learn(self._tools, calls[0].tool if calls else REPLY)
        self._tools += [call.tool for call in calls]
