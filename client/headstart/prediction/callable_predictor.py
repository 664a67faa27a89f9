"""`CallablePredictor`: plugs a user's own function in as a predictor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from headstart.prediction.history_view import AGENT, CALLS, RESULT, USER, HistoryEntry, HistoryView
from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from headstart.speculation.argument_equality import same_arguments

OwnGuess: TypeAlias = "PredictedCall | tuple[str, Mapping[str, object]] | tuple[Any, ...]"
"""A `PredictedCall`, (tool, arguments), or (tool, arguments, confidence)."""
GuessFunction = Callable[[HistoryView], "Iterable[OwnGuess] | None"]


class InvalidGuess(TypeError, ValueError):
    """What a predictor returned is no guess; the message names it and the form that is needed.

    A `TypeError`, as for another form, and a `ValueError`, as for a confidence outside [0, 1].
    """


class CallablePredictor:
    """A predictor whose guesses are made by a function: `fn(history) -> guesses, best first`.

    A guess is a `PredictedCall`, `(tool, arguments)`, or `(tool, arguments, confidence)`; None and
    an empty list are no guess. A guess without a confidence gets the share of such guesses of its
    rank that were right so far, (right + 1) / (guesses + 2). What the function raises is raised;
    a result of another form, and a confidence outside [0, 1], raise `InvalidGuess`.
    """

    def __init__(self, function: GuessFunction) -> None:
        self._function = function
        self._ranks: dict[int, list[int]] = {}
        """Of each rank: how many of its guesses without a confidence were right, and all."""

    def run(self, *, agent: str = "", user_id: str = "") -> CallableRun:
        """Return the predictor of a new run."""
        return CallableRun(self._function, self._ranks, agent, user_id)


class CallableRun:
    """One run of a `CallablePredictor`."""

    def __init__(
        self, function: GuessFunction, ranks: dict[int, list[int]], agent: str, user_id: str
    ) -> None:
        self._function, self._ranks = function, ranks
        self._entries: list[HistoryEntry] = []
        self._history = HistoryView(self._entries, agent, user_id)
        self._unsure: list[tuple[int, PredictedCall]] = []

    def user(self, text: str) -> None:
        """Take in a message of the user."""
        self._entries.append(HistoryEntry(USER, text=text))

    def said(self, text: str) -> None:
        """Take in a message of the agent."""
        self._entries.append(HistoryEntry(AGENT, text=text))

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Take in what a call returned."""
        self._entries.append(HistoryEntry(RESULT, tool=tool, result=result, error=error))

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        """Return the function's guesses."""
        self._unsure = []
        found = []
        for rank, given in enumerate(_listed(self._function(self._history))):
            if rank >= limit:
                break
            guess, sure = self._read(given, rank)
            if not sure:
                self._unsure.append((rank, guess))
            found.append(guess)
        return found

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Count which guesses were right, and take in the calls."""
        for rank, guess in self._unsure:
            right = any(
                each.tool == guess.tool and same_arguments(each.arguments, guess.arguments)
                for each in calls
            )
            counts = self._ranks.setdefault(rank, [0, 0])
            counts[0] += right
            counts[1] += 1
        self._unsure = []
        self._entries.append(HistoryEntry(CALLS, calls=tuple(calls)))

    def _read(self, given: Any, rank: int) -> tuple[PredictedCall, bool]:
        """Return a guess, and whether its confidence was given."""
        if isinstance(given, PredictedCall):
            check_guess(given.tool, given.arguments, given.confidence)
            return given, True
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise InvalidGuess(
                f"a predictor returned the guess {given!r:.200}; return PredictedCall, (tool, "
                "arguments) or (tool, arguments, confidence)"
            )
        tool, arguments, *rest = given
        right, count = self._ranks.get(rank, (0, 0))
        confidence = rest[0] if rest else (right + 1) / (count + 2)
        check_guess(tool, arguments, confidence)
        evidence = Evidence(count, confidence, 1.0, 0, "function")
        return PredictedCall(tool, arguments, confidence, evidence), bool(rest)


def _listed(given: Any) -> Iterable[Any]:
    """Return the guesses that a function returned, none for None."""
    if not given:
        return ()
    is_guess = isinstance(given, tuple) and isinstance(given[0], str)
    if is_guess or isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidGuess(
            f"a predictor returned {given!r:.200}; return a list of guesses, as in "
            "[(tool, arguments)]"
        )
    return given


def check_guess(tool: object, arguments: object, confidence: object) -> None:
    """Raise `InvalidGuess` for parts of a guess that cannot be used."""
    if not isinstance(tool, str) or not isinstance(arguments, Mapping):
        raise InvalidGuess(
            f"a predictor returned tool {tool!r:.100} and arguments {arguments!r:.200}; the tool "
            "must be a string, the arguments a mapping"
        )
    if not isinstance(confidence, int | float) or isinstance(confidence, bool):
        raise InvalidGuess(
            f"a predictor returned confidence {confidence!r:.100}; it must be a number"
        )
    if math.isnan(confidence) or not 0.0 <= confidence <= 1.0:
        raise InvalidGuess(f"a predictor returned confidence {confidence!r}; it must be in [0, 1]")
