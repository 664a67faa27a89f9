"""A predictor that guesses what it is given, for the runs of an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headstart.prediction.interface import Evidence, PredictedCall, ToolCall

CONTEXT = {"workflow_type": "refund", "domain": "retail", "user_id": "u7"}
EVIDENCE = Evidence(40, 0.95, 0.97, 12, "arguments")
TOOLS: dict[str, object] = {"search": {"readOnlyHint": True}, "pay": {"destructiveHint": True}}


class Scripted:
    """A predictor that guesses what it is given, and keeps what it receives."""

    def __init__(self, *guesses: tuple[str, Mapping[str, object]]) -> None:
        self.guesses = [PredictedCall(*each, 0.9, EVIDENCE) for each in guesses]
        self.received: list[Any] = []

    def user(self, text: str) -> None:
        self.received.append(("user", text))

    def said(self, text: str) -> None:
        self.received.append(("said", text))

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        self.received.append((tool, result, error))

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        return self.guesses[:limit]

    def calls(self, calls: Sequence[ToolCall]) -> None:
        self.received.append(list(calls))
