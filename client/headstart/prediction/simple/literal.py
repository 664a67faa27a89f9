"""`LiteralPredictor`: guesses the whole calls that followed the previous tool, to the letter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.prediction.simple.tool_names import REPLY, START

_DECAY: Final = 0.98
_FORGOTTEN: Final = 0.02
_Followers = dict[tuple[str, str], tuple[float, Mapping[str, object]]]
"""Weight and arguments of each call, by its tool and its arguments as JSON"""


class LiteralPredictor:
    """A bigram: counts that decay of the calls after each tool, as the agent Zeph keeps them."""

    def __init__(self) -> None:
        self._followers: dict[str, _Followers] = {}

    def run(self, *, agent: str = "", user_id: str = "") -> LiteralRun:  # noqa: ARG002
        """Return the predictor of a new run."""
        return LiteralRun(self._followers)


class LiteralRun:
    """One run of a `LiteralPredictor`."""

    def __init__(self, followers: dict[str, _Followers]) -> None:
        self._followers = followers
        self._previous = START

    def user(self, text: str) -> None:
        """Ignore a message of the user."""

    def said(self, text: str) -> None:
        """Ignore a message of the agent."""

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Ignore what a call returned."""

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the calls that followed the previous tool most often."""
        followers = self._followers.get(self._previous, {})
        total = sum(weight for weight, _ in followers.values()) + 1
        falling = sorted(followers, key=lambda each: (-followers[each][0], each))
        found: list[PredictedCall] = []
        for tool, text in falling:
            if tool != REPLY and len(found) < limit:
                weight, arguments = followers[tool, text]
                evidence = Evidence(int(weight), weight / total, 1.0, int(weight), "repeat")
                found.append(PredictedCall(tool, arguments, weight / total, evidence))
        return found

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Count the first call after the previous tool; what was not seen for long is forgotten."""
        followers = self._followers.setdefault(self._previous, {})
        for key, (weight, arguments) in list(followers.items()):
            if weight * _DECAY < _FORGOTTEN:
                del followers[key]
            else:
                followers[key] = weight * _DECAY, arguments
        if calls:
            text = json.dumps(calls[0].arguments, sort_keys=True, default=str)
            key, arguments = (calls[0].tool, text), calls[0].arguments
        else:
            key, arguments = (REPLY, ""), {}
        followers[key] = followers.get(key, (0.0, {}))[0] + 1.0, arguments
        if calls:
            self._previous = calls[-1].tool
