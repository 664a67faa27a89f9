"""Assumptions in place of figures that are not recorded, and the number of guesses they affect.

A hit is worth its gain, a miss its cost; an estimate where it is neither recorded nor assumed, and
0 ms where there is none either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from learners.outcome import Outcome
from replay.predictions.estimates import Estimate, Estimates, GuessPlace, RecordedPrices

WHY: Final[Mapping[str, str]] = {
    "mode": "the mode did not allow it",
    "tool": "the tool is not safe to start on a guess",
    "budget": "the limit of waste was reached",
}
"""The client's reasons for which a guess is not startable, in words."""
GAIN: Final = 1
COST: Final = 2
MIXED: Final = -1


class AssumedOutcome(Outcome, frozen=True, gc=False):
    """An outcome whose gain or cost is not recorded, but assumed or estimated.

    `assumed`: `GAIN`, `COST`, or both; `MIXED`: no decision could have known the other one.
    `estimate`: ms that the hit saves or the miss wastes, by which it is judged only; `unpriced`:
    there is no estimate either.
    """

    assumed: int = 0
    estimate: float | None = None
    unpriced: bool = False

    @classmethod
    def of(cls, outcome: Outcome, assumed: int, **changes: float | None) -> AssumedOutcome:
        """Return an outcome with what is assumed."""
        return cls(**{**msgspec.structs.asdict(outcome), **changes, "assumed": assumed})


@dataclass
class Basis:
    """Counts guesses whose worth is not recorded.

    `unpriced`: those that count as 0 ms, `unpriced_misses` of them wrong. `assumed`: how many rest
    on each assumption, by its sentence; `estimated`: on each of `estimates`. `prices`: takes what
    is recorded, if estimates are made of it.
    """

    unpriced: int = 0
    assumed: dict[str, int] = field(default_factory=dict)
    unpriced_misses: int = 0
    estimated: dict[Estimate, int] = field(default_factory=dict)
    estimates: Estimates = field(default_factory=Estimates)
    prices: RecordedPrices | None = None

    @property
    def incomplete(self) -> bool:
        """Whether estimates are needed, which are known only when all is read."""
        return self.prices is not None and self.unpriced > 0

    def record(self, outcome: Outcome, place: GuessPlace) -> None:
        """Take a recorded gain of a hit, or a recorded cost of a miss."""
        if self.prices is not None:
            ms = outcome.gain if outcome.correct else outcome.cost
            self.prices.add(outcome.correct, place, ms)

    def assume(self, sentence: str, count: int = 1) -> None:
        """Count guesses that rest on an assumption."""
        self.assumed[sentence] = self.assumed.get(sentence, 0) + count

    def add(self, unpriced: int, assumed: Mapping[str, int]) -> None:
        """Add what was counted elsewhere."""
        self.unpriced += unpriced
        for sentence, count in assumed.items():
            self.assume(sentence, count)

    def judged(self, outcome: Outcome, place: GuessPlace) -> AssumedOutcome:
        """Return an outcome of unknown worth with its estimate, if there is one; count it."""
        assumed = outcome.assumed if isinstance(outcome, AssumedOutcome) else 0
        found = self.estimates.find(outcome.correct, place)
        if found is None:
            self.unpriced += 1
            self.unpriced_misses += not outcome.correct
            return AssumedOutcome.of(outcome, assumed, unpriced=True)
        self.estimated[found] = self.estimated.get(found, 0) + 1
        return AssumedOutcome.of(outcome, assumed, estimate=found.ms)


@dataclass(frozen=True)
class Assumed:
    """Gain and cost (ms) of guesses that record none; None: 0 ms, and counted as not known.

    `startable`: reasons for which guesses could not be started, but are to count.
    """

    gain_ms: float | None = None
    cost_ms: float | None = None
    startable: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.gain_ms is not None or self.cost_ms is not None or bool(self.startable)

    def counted(self, outcome: Outcome, basis: Basis) -> Outcome:
        """Return an outcome as one that could have been started, where it is to count as such."""
        reason = outcome.not_startable
        if reason not in self.startable:
            return outcome
        why = WHY.get(reason, f"the log gives the reason {reason!r} against it")
        basis.assume(f"it could have been started, although {why}")
        return msgspec.structs.replace(outcome, not_startable="")

    def priced(
        self,
        outcome: Outcome,
        basis: Basis,
        *,
        gain_known: bool,
        cost_known: bool,
        place: GuessPlace = GuessPlace("", "", ""),  # noqa: B008 - it is immutable
    ) -> Outcome:
        """Return an outcome with what is assumed; count it where its worth is not recorded.

        `place`: where its estimate is looked up.
        """
        gain = None if gain_known else self.gain_ms
        cost = None if cost_known else self.cost_ms
        if gain is not None or cost is not None:
            outcome = AssumedOutcome.of(
                outcome,
                GAIN * (gain is not None) | COST * (cost is not None),
                gain=outcome.gain if gain is None else gain,
                cost=outcome.cost if cost is None else cost,
            )
        if outcome.not_startable:
            return outcome
        if gain is not None:
            basis.assume(f"a hit saves {gain:g} ms (--gain)")
        if cost is not None:
            basis.assume(f"a miss wastes {cost:g} ms (--cost)")
        gain_known, cost_known = gain_known or gain is not None, cost_known or cost is not None
        if gain_known if outcome.correct else cost_known:
            return outcome
        return basis.judged(outcome, place)
