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


class PastRuns(NamedTuple):
    """What an episodic memory added to a confidence: the past runs that were asked."""

    own_confidence: float  # of the predictor alone
    cases: int = 0  # past runs that were asked
    writers: int = 0  # independent writers of those that speak for the guess
    share: float | None = None  # of the votes, for the guessed tool; None without votes
    episodes: tuple[str, ...] = ()  # ids of the past runs
    degraded: str = ""  # why there is no evidence, "" if the memory answered

    def as_json(self) -> dict[str, object]:
        """Return it as it is logged in `data.memory`."""
        found: dict[str, object] = {
            "episodes": list(self.episodes), "own_confidence": self.own_confidence,
            "cases": self.cases, "writers": self.writers,
        }  # fmt: skip
        optional = {"share": self.share, "degraded": self.degraded or None}
        return found | {name: value for name, value in optional.items() if value is not None}


class PredictedCall(NamedTuple):
    """A guess at the next call, with its confidence."""

    tool: str
    arguments: Mapping[str, object]
    confidence: float  # calibrated probability that this call, name and all arguments, is made next
    evidence: Evidence
    memory: PastRuns | None = None


class RunPredictor(Protocol):
    """Guesses and learns from what one run has shown so far, or the runs of one conversation.

    If it has a method `run_begun()` without arguments, that is called at the begin of each run.
    """

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
