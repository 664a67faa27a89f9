"""Scales gains and costs of recorded outcomes: what if a tool cost twice as much?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import msgspec

from learners.outcome import Outcome
from replay.predictions.assumptions import AssumedOutcome


@dataclass(frozen=True)
class PayoffScales:
    """Factors of gains and costs by tool; under "" the one for all other tools."""

    gain: Mapping[str, float] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.gain or self.cost)

    def applied(self, outcome: Outcome, tool: str | None) -> Outcome:
        """Return an outcome of a guessed tool with its gain and cost scaled."""
        gain = self.gain.get(tool or "", self.gain.get("", 1.0))
        cost = self.cost.get(tool or "", self.cost.get("", 1.0))
        if gain == cost == 1.0:
            return outcome
        scaled = {"gain": outcome.gain * gain, "cost": outcome.cost * cost}
        if isinstance(outcome, AssumedOutcome) and outcome.estimate is not None:
            scaled["estimate"] = outcome.estimate * (gain if outcome.correct else cost)
        return msgspec.structs.replace(outcome, **scaled)

    @property
    def named(self) -> set[str]:
        """The tools that have a factor of their own."""
        return {*self.gain, *self.cost} - {""}


def read_scales(gain: Sequence[str], cost: Sequence[str]) -> PayoffScales:
    """Return the factors of `2` (all tools) and `search=2` (one). Raises `ValueError`."""
    return PayoffScales(_factors("--gain-scale", gain), _factors("--cost-scale", cost))


def _factors(option: str, given: Sequence[str]) -> dict[str, float]:
    factors = {}
    for each in given:
        tool, _, text = each.rpartition("=")
        try:
            factor = float(text)
        except ValueError:
            factor = float("nan")
        if not (isfinite(factor) and 0.0 <= factor <= 1e6):
            raise ValueError(f"{option} {each}: give a factor from 0 to 1e6, or TOOL=FACTOR")
        factors[tool] = factor
    return factors
