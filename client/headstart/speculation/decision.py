"""Decides from a threshold, a mode and a guess: speculate, suggest or ask, and why. Pure."""

from __future__ import annotations

from numbers import Real
from typing import Literal, NamedTuple

from headstart.arguments.checks import InvalidArgument
from headstart.thresholds.modes import Mode, known_mode
from headstart.thresholds.threshold import Threshold

Action = Literal["speculate", "suggest", "ask"]
"""speculate: start the guessed call now. suggest: show it. ask: ignore it."""

Obstacle = Literal["mode", "tool", "budget"]
"""Why no confidence suffices: the mode, a tool that is not declared safe, the cost budget."""


class Guess(NamedTuple):
    """A guessed call. `gain`: saved by a hit, `cost`: wasted by a miss, both in ms.

    None means unknown: the context's averages apply. `calibrated`: the confidence is the share of
    such guesses that are right, so it is believed in a cold start (`Threshold.for_guess`).
    """

    tool: str
    confidence: float
    gain: float | None = None
    cost: float | None = None
    calibrated: bool = False


class SpeculationDecision(NamedTuple):
    """A decision about a guess. `reason` is text for people.

    `needed`: the confidence needed to speculate. `explored`: started below it, by `exploration`.
    `not_startable`: why the call could not be started at any confidence; None if the threshold
    decided.
    """

    action: Action
    reason: str
    threshold: Threshold
    mode: Mode = "act"
    needed: float = 1.0
    explored: bool = False
    not_startable: Obstacle | None = None


def check_guess(guess: Guess) -> Guess:
    """Return the guess. Raises `InvalidArgument` naming a field that cannot be used."""
    if not isinstance(guess.tool, str) or not guess.tool:
        raise InvalidArgument(f"tool must be a non-empty string, not {guess.tool!r:.64}")
    if not _is_number(guess.confidence) or not 0.0 <= guess.confidence <= 1.0:
        raise InvalidArgument(f"confidence must be within [0, 1], not {guess.confidence!r}")
    for name, value in (("gain", guess.gain), ("cost", guess.cost)):
        if value is not None and not (_is_number(value) and 0.0 <= value < float("inf")):
            raise InvalidArgument(f"{name} must be a finite number of at least 0, not {value!r}")
    if not isinstance(guess.calibrated, bool):
        raise InvalidArgument(f"calibrated must be true or false, not {guess.calibrated!r:.64}")
    return guess


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def decide(
    guess: Guess,
    threshold: Threshold,
    mode: Mode,
    *,
    refusal_reason: str,
    fits: bool,
    explore: bool,
) -> SpeculationDecision:
    """Return the decision.

    `refusal_reason`: why the tool may not run on a guess, "" if it may. `fits`: the cost of a miss
    is within the budget. `explore`: start it also below the threshold. An unknown mode is off.
    """
    mode = known_mode(mode)
    needed = threshold.for_guess(guess.gain, guess.cost, calibrated=guess.calibrated)
    not_startable = obstacle(mode, refusal_reason=refusal_reason, fits=fits)

    def choice(action: Action, reason: str, explored: bool = False) -> SpeculationDecision:
        return SpeculationDecision(action, reason, threshold, mode, needed, explored, not_startable)

    if mode == "off":
        return choice("ask", "the mode is off")
    confident = guess.confidence >= needed
    shown = guess.confidence >= threshold.suggest
    stated = f"confidence {guess.confidence:.3f}, {needed:.3f} needed"
    if mode == "observe":
        starts = confident and not refusal_reason and fits
        would = "speculate" if starts else "suggest" if shown else "ask"
        return choice("ask", f"the mode is observe; would {would}: {refusal_reason or stated}")
    if not confident and not (explore and not refusal_reason and fits):
        return choice("suggest" if shown else "ask", stated)
    if refusal_reason:
        return choice("suggest" if shown else "ask", refusal_reason)
    if not fits:
        return choice("suggest" if shown else "ask", "the limit of wasted cost is reached")
    if not confident:
        return choice("speculate", f"exploration: {stated}", explored=True)
    return choice("speculate", stated)


def obstacle(mode: Mode, *, refusal_reason: str, fits: bool) -> Obstacle | None:
    """Return why a guess cannot be started at any confidence; None if it can."""
    if mode != "act":
        return "mode"
    if refusal_reason:
        return "tool"
    return None if fits else "budget"
