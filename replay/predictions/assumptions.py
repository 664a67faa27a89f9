"""Assumptions in place of figures that are not recorded, and the number of guesses they affect.

A hit is worth its gain, a miss its cost; 0 ms where it is neither recorded nor assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from learners.outcome import Outcome

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
    """An outcome whose gain or cost is not recorded, but assumed.

    `assumed`: `GAIN`, `COST`, or both; `MIXED`: no decision could have known the other one.
    """

    assumed: int = 0

    @classmethod
    def of(cls, outcome: Outcome, assumed: int, **changes: float) -> AssumedOutcome:
        """Return an outcome with what is assumed."""
        return cls(**{**msgspec.structs.asdict(outcome), **changes, "assumed": assumed})


@dataclass
class Basis:
    """Counts guesses whose worth is not recorded.

    `unpriced`: those that count as 0 ms. `assumed`: how many rest on each assumption, by its
    sentence.
    """

    unpriced: int = 0
    assumed: dict[str, int] = field(default_factory=dict)

    def assume(self, sentence: str, count: int = 1) -> None:
        """Count guesses that rest on an assumption."""
        self.assumed[sentence] = self.assumed.get(sentence, 0) + count

    def add(self, unpriced: int, assumed: Mapping[str, int]) -> None:
        """Add what was counted elsewhere."""
        self.unpriced += unpriced
        for sentence, count in assumed.items():
            self.assume(sentence, count)


@dataclass(frozen=True)
class Assumed:
    """Gain and cost (ms) of guesses that record none; None: 0 ms, and counted as not known.

    `startable`: reasons for which guesses could not be started, and are to count all the same.
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
        self, outcome: Outcome, basis: Basis, *, gain_known: bool, cost_known: bool
    ) -> Outcome:
        """Return an outcome with what is assumed; count it where its worth is not recorded."""
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
        basis.unpriced += not (gain_known if outcome.correct else cost_known)
        return outcome
