"""One decision as it was guessed: what the figures are made of."""

from __future__ import annotations

from typing import NamedTuple


class JudgedPoint(NamedTuple):
    """A guess at a decision and what was right of it. Times in ms.

    `run`: place of the run in the order of its seed; `domain`; `repeat`: whether a run of the same
    task came before; `previous`: the tool called last in the run, "" for none; `tool`: the tool
    that is guessed first, "" for no guess; `confidence`: of the first guess, 0 for none;
    `calling`: whether the model made a call; `named`: whether the first guess has the name of one;
    `exact`: rank, from 1, of the first guess that is a call of the turn with all arguments, 0 for
    none; `gain`: what the first guess saves if it is right, and the latency that a wrong one
    wastes; `tools`, `thinking`, `savable`: see `TurnTimes`.
    """

    run: int
    domain: str
    repeat: bool
    previous: str
    tool: str
    confidence: float
    calling: bool
    named: bool
    exact: int
    gain: float
    tools: float
    thinking: float
    savable: float

    @property
    def hit(self) -> bool:
        """Whether the first guess is exact."""
        return self.exact == 1


class PredictorCosts(NamedTuple):
    """What a predictor cost on some runs: CPU in ns, decisions, and its state in bytes."""

    guessing: int = 0
    learning: int = 0
    observing: int = 0
    decisions: int = 0
    state_bytes: int = 0
