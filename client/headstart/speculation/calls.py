"""Calls as a turn takes them: the guessed ones, and those that the model requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from headstart.arguments.checks import InvalidArgument
from headstart.prediction.interface import Evidence, PastRuns, PredictedCall
from headstart.speculation.decision import Guess, check_guess


class GuessedCall(NamedTuple):
    """A guessed call of a tool.

    `arguments`: a mapping, or JSON as model APIs give it. `confidence`: in [0, 1]. `gain`, `cost`:
    ms that a hit saves and a miss wastes, if known; otherwise the context's averages apply.
    `evidence`: what stood behind the confidence; it is logged. `calibrated`: the confidence is the
    share of such guesses that are right, so it is believed in a cold start. `memory`: the past runs
    that the confidence takes into account; they are logged.
    """

    tool: str
    arguments: Any
    confidence: float
    gain: float | None = None
    cost: float | None = None
    evidence: Evidence | None = None
    calibrated: bool = False
    memory: PastRuns | None = None


class RequestedCall(NamedTuple):
    """A call that the model requested. `id`: unique within the turn. `arguments`: as a guess's."""

    id: str
    tool: str
    arguments: Any


class CallWithId(Protocol):
    """What `settle` needs of a requested call."""

    @property
    def id(self) -> str:
        """Identifies the call within its turn."""
        ...

    @property
    def tool(self) -> str:
        """The name of the tool."""
        ...

    @property
    def arguments(self) -> Any:
        """A mapping, or JSON as model APIs give it."""
        ...


def guessed_call(given: PredictedCall | GuessedCall) -> GuessedCall:
    """Return a guess in the form that a turn uses, with a copy of its arguments.

    The guess of a predictor is calibrated.

    Raises `InvalidArgument`.
    """
    if isinstance(given, PredictedCall):
        given = GuessedCall(
            given.tool, given.arguments, given.confidence, evidence=given.evidence, calibrated=True,
            memory=given.memory,
        )  # fmt: skip
    if not isinstance(given, GuessedCall):
        raise InvalidArgument(
            f"guesses: {given!r:.64} is no guess; give headstart.GuessedCall(tool, arguments, "
            "confidence)"
        )
    check_guess(stakes(given))
    try:
        return given._replace(arguments=_copied(given.arguments))
    except RecursionError:  # equals nothing
        return given


def _copied(arguments: Any) -> Any:
    """Return arguments with copies of their dicts and lists; other objects are shared.

    Executors append to the arguments while a model streams them, but the guessed call is made, and
    compared, as it was guessed.
    """
    if type(arguments) is dict:
        return {name: _copied(each) for name, each in arguments.items()}
    if type(arguments) is list:
        return [_copied(each) for each in arguments]
    return arguments


def stakes(guess: GuessedCall) -> Guess:
    """Return the part of a guess that a decision needs."""
    return Guess(guess.tool, guess.confidence, guess.gain, guess.cost, guess.calibrated)


def evidence_of(guess: GuessedCall) -> dict[str, object] | None:
    """Return the evidence of a guess as JSON; None if it has none."""
    evidence = guess.evidence
    if evidence is None:
        return None
    return dict(evidence) if isinstance(evidence, Mapping) else evidence._asdict()
