"""`BackOffPredictor`: back-off over the last events, and arguments from where they came before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.prediction.simple.argument_mappings import ArgumentMappings
from headstart.prediction.simple.shown_run import ShownRun
from headstart.prediction.simple.tool_names import REPLY, ToolNames, likeliest

_CONSIDERED: Final = 3


class BackOffPredictor:
    """P(tool) by back-off over the last `order` events, times the share of its mappings."""

    def __init__(self, order: int = 3) -> None:
        self._names = ToolNames(order)
        self._mappings = ArgumentMappings(unused=True)

    def run(self, *, agent: str = "", user_id: str = "") -> BackOffRun:  # noqa: ARG002
        """Return the predictor of a new run."""
        return BackOffRun(self._names, self._mappings)


class BackOffRun(ShownRun):
    """One run of a `BackOffPredictor`."""

    def __init__(self, names: ToolNames, mappings: ArgumentMappings) -> None:
        super().__init__(mappings)
        self._names = names

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the likeliest tools with their likeliest arguments."""
        names = self._names.probabilities(self.events)
        found = []
        for tool in likeliest(names, max(limit, _CONSIDERED)):
            arguments = self.mappings.guess(self.values, tool)
            if arguments is not None:
                p, q = names[tool], arguments.probability
                evidence = Evidence(arguments.tries, p, q, 0, "arguments")
                found.append(PredictedCall(tool, arguments.arguments, p * q, evidence))
        return sorted(found, key=lambda each: (-each.confidence, each.tool))[:limit]

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn what followed the last events, and the arguments."""
        self._names.learn(self.events, calls[0].tool if calls else REPLY)
        super().calls(calls)
