"""The interface of predictors of tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class ToolCall(NamedTuple):
    """One call of a tool."""

    tool: str
    arguments: Mapping[str, object]  # a JSON object


class Evidence(NamedTuple):
    """The basis of a confidence."""

    tries: int  # observations behind the weakest argument
    tool_probability: float
    arguments_probability: float
    repeats: int  # times the whole call followed the same call(s) before
    source: str  # "arguments" | "repeat" | "" ...


class PredictedCall(NamedTuple):
    """A guess at the next call, with its confidence."""

    tool: str
    arguments: Mapping[str, object]
    confidence: float  # calibrated probability that this call, name and all arguments, is made next
    evidence: Evidence


class RunPredictor(Protocol):
    """Guesses and learns from what one run has shown so far."""

    def user(self, text: str) -> None:
        """Take in a message of the user."""

    def said(self, text: str) -> None:
        """Take in a message of the agent."""

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Take in the result of a call: `error` is true if the call failed."""

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return at most `limit` guesses, best first, at the beginning of a model call."""
        ...

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn from what the model answered: all calls of the turn, or none for a reply."""


class Predictor(Protocol):
    """Makes the predictor of each run."""

    def run(self, *, agent: str = "", user_id: str = "") -> RunPredictor:
        """Begin a run of the agent `agent`, on behalf of the user `user_id`."""
        ...
