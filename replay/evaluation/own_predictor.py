"""A user's predictor under evaluation: each of its faults is raised as `PredictorFault`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headstart.prediction.callable_predictor import InvalidGuess, check_guess
from headstart.prediction.interface import PredictedCall, Predictor, RunPredictor, ToolCall
from replay.evaluation.predictor_fault import PredictorFault, faults_of
from replay.evaluation.predictor_state import pickled_state

_FIELDS: Final = ("tool", "arguments", "confidence")


class OwnPredictor:
    """A predictor with the name MODULE:NAME. Its calls raise `PredictorFault`, nothing else."""

    def __init__(self, predictor: Predictor, name: str) -> None:
        self._own, self._name = predictor, name

    def run(self, *, agent: str = "", user_id: str = "") -> OwnRun:
        """Begin a run."""
        with faults_of(self._name):
            return OwnRun(self._own.run(agent=agent, user_id=user_id), self._name)

    def to_bytes(self) -> bytes:
        """Return the predictor's state: of its own `to_bytes()`, else its pickle."""
        to_bytes = getattr(self._own, "to_bytes", None)
        if callable(to_bytes):
            with faults_of(self._name):
                return bytes(to_bytes())
        try:
            return pickled_state(self._own)
        except Exception as error:  # pickle raises TypeError, AttributeError and its own
            raise PredictorFault(
                f": its state cannot be pickled ({error}); give it a method to_bytes()", self._name
            ) from error


class OwnRun:
    """One run of an `OwnPredictor`."""

    def __init__(self, run: RunPredictor, name: str) -> None:
        self._own, self._name = run, name

    def user(self, text: str) -> None:
        """Pass on a message of the user."""
        with faults_of(self._name):
            self._own.user(text)

    def said(self, text: str) -> None:
        """Pass on a message of the agent."""
        with faults_of(self._name):
            self._own.said(text)

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Pass on what a call returned."""
        with faults_of(self._name):
            self._own.result(tool, result, error=error)

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the guesses, checked."""
        with faults_of(self._name):
            found = list(self._own.guess(limit))[:limit]
            for each in found:
                _check(each)
            return found

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Pass on what the model answered."""
        with faults_of(self._name):
            self._own.calls(calls)


def _check(guess: Any) -> None:
    if not all(hasattr(guess, name) for name in _FIELDS):
        raise InvalidGuess(f"a predictor returned {guess!r:.200}; return a list of PredictedCall")
    check_guess(guess.tool, guess.arguments, guess.confidence)
