"""From a threshold, a mode and a guess to a decision: speculate, suggest or ask, and why. Pure."""

from __future__ import annotations

from numbers import Real
from typing import Literal, NamedTuple

from headstart.arguments.checks import InvalidArgument
from headstart.thresholds.modes import Mode, known_mode
from headstart.thresholds.threshold import Threshold

Action = Literal["speculate", "suggest", "ask"]
"""speculate: start the guessed call now. suggest: show it. ask: do nothing with it."""

Obstacle = Literal["mode", "tool", "budget"]
"""Why no confidence is enough: the mode, a tool that is not safe to start, the limit of waste."""


class Guess(NamedTuple):
    """A guessed call. `gain`: what a hit saves, `cost`: what a miss wastes, both in one unit (ms).

    None where they are not known: the context's averages then count.
    """

    tool: str
    confidence: float
    gain: float | None = None
    cost: float | None = None


class SpeculationDecision(NamedTuple):
    """A decision. `reason` is for people; `explored`: against the threshold, to find out."""

    action: Action
    reason: str
    threshold: Threshold
    mode: Mode = "act"
    needed: float = 1.0
    """Confidence that speculating asked for."""
    explored: bool = False
    not_startable: Obstacle | None = None
    """Why the call could not be started at any confidence; None where the threshold decided."""


def checked(guess: Guess) -> Guess:
    """Return a guess that can be decided upon. Raises `InvalidArgument` naming the field."""
    if not isinstance(guess.tool, str) or not guess.tool:
        raise InvalidArgument(f"tool: a name, not {guess.tool!r:.64}")
    if not _is_number(guess.confidence) or not 0.0 <= guess.confidence <= 1.0:
        raise InvalidArgument(f"confidence: within [0, 1], not {guess.confidence!r}")
    for name, value in (("gain", guess.gain), ("cost", guess.cost)):
        if value is not None and not (_is_number(value) and 0.0 <= value < float("inf")):
            raise InvalidArgument(f"{name}: a finite number, at least 0, not {value!r}")
    return guess


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def decided(
    guess: Guess,
    threshold: Threshold,
    mode: Mode,
    *,
    objection: str,
    fits: bool,
    explore: bool,
) -> SpeculationDecision:
    """Return the decision.

    `objection`: why the tool may not run on a guess ("": it may); `fits`: what a miss would waste
    is within the breaker's limit; `explore`: take this one against the threshold. A mode that is
    none counts as off.
    """
    mode = known_mode(mode)
    needed = threshold.speculate
    if guess.gain is not None and guess.cost is not None:
        needed = threshold.speculate_for(guess.gain, guess.cost)

    not_startable = obstacle(mode, objection=objection, fits=fits)

    def choice(action: Action, reason: str, explored: bool = False) -> SpeculationDecision:
        return SpeculationDecision(action, reason, threshold, mode, needed, explored, not_startable)

    if mode == "off":
        return choice("ask", "the mode is off")
    confident = guess.confidence >= needed
    shown = guess.confidence >= threshold.suggest
    stated = f"confidence {guess.confidence:.3f}, {needed:.3f} needed"
    if mode == "observe":
        starts = confident and not objection and fits
        would = "speculate" if starts else "suggest" if shown else "ask"
        return choice("ask", f"the mode is observe; would {would}: {objection or stated}")
    if not confident and not (explore and not objection and fits):
        return choice("suggest" if shown else "ask", stated)
    if objection:
        return choice("suggest" if shown else "ask", objection)
    if not fits:
        return choice("suggest" if shown else "ask", "the limit of wasted cost is reached")
    if not confident:
        return choice("speculate", f"exploration: {stated}", explored=True)
    return choice("speculate", stated)


def obstacle(mode: Mode, *, objection: str, fits: bool) -> Obstacle | None:
    """Return why a guess cannot be started at any confidence; None where it can."""
    if mode != "act":
        return "mode"
    if objection:
        return "tool"
    return None if fits else "budget"
