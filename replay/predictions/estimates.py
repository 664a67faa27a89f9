"""Estimates of gains and costs that a log lacks: the means of those it has.

A guess that was not started wasted nothing, so its log has no cost, but a policy that starts it
wastes something. The estimate judges policies; no policy decides by it or learns from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

MOST: Final = 50_000
"""Tools of workflow types that are kept apart; further ones count for their tenant alone."""


class GuessPlace(NamedTuple):
    """Whose guess it is, and of which tool; "" where that is not known."""

    tenant: str
    workflow_type: str
    tool: str


class PriceSum(msgspec.Struct, array_like=True, gc=False):
    """The sum (ms) and number of recorded gains of hits (`correct`), or costs of misses."""

    correct: bool
    place: GuessPlace
    total: float = 0.0
    count: int = 0


class Estimate(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A gain of hits (`correct`), or a cost of misses: `ms`, the mean of so many recorded ones.

    `tool` and `workflow_type` are "" where the mean is of all of them.
    """

    correct: bool
    tenant: str
    workflow_type: str
    tool: str
    ms: float
    recorded: int


class RecordedPrices:
    """Sums of the gains of hits and the costs of misses that are recorded, 0 included."""

    def __init__(self) -> None:
        self._sums: dict[tuple[bool, GuessPlace], PriceSum] = {}

    def add(self, correct: bool, place: GuessPlace, ms: float) -> None:
        """Add the recorded gain of a hit (`correct`), or the recorded cost of a miss."""
        own = self._sums.get((correct, place))
        if own is None:
            if len(self._sums) >= MOST:
                place = GuessPlace(place.tenant, "", "")
            own = self._sums.setdefault((correct, place), PriceSum(correct, place))
        own.total += ms
        own.count += 1

    @property
    def sums(self) -> list[PriceSum]:
        """The sums, in the order in which the log has their places."""
        return list(self._sums.values())


@dataclass(frozen=True)
class Estimates:
    """Means of what a whole log records, by kind and place."""

    means: Mapping[tuple[bool, GuessPlace], Estimate] = field(default_factory=dict)

    @classmethod
    def of(cls, sums: Iterable[PriceSum]) -> Estimates:
        """Return the means of the sums of all units, for tools, workflow types and tenants."""
        totals: dict[tuple[bool, GuessPlace], tuple[float, int]] = {}
        for each in sums:
            for place in _places(GuessPlace(*each.place)):
                total, count = totals.get((each.correct, place), (0.0, 0))
                totals[each.correct, place] = total + each.total, count + each.count
        return cls(
            {
                (correct, place): Estimate(correct, *place, total / count, count)
                for (correct, place), (total, count) in totals.items()
            }
        )

    def find(self, correct: bool, place: GuessPlace) -> Estimate | None:
        """Return the estimate of the tool, else of its workflow type, else of its tenant."""
        found = (self.means.get((correct, each)) for each in _places(place))
        return next((each for each in found if each is not None), None)


def _places(place: GuessPlace) -> Iterable[GuessPlace]:
    """Yield a place and those that include it, the narrowest first; none with an unknown name."""
    tenant, workflow_type, tool = place
    if tool:
        yield place
    if workflow_type:
        yield GuessPlace(tenant, workflow_type, "")
    yield GuessPlace(tenant, "", "")


class EstimatedGuesses(msgspec.Struct, array_like=True, gc=False):
    """How many guesses were judged by an estimate."""

    estimate: Estimate
    guesses: int


def sentences(used: Iterable[EstimatedGuesses]) -> dict[str, int]:
    """Return what is assumed in words, with the number of guesses that rest on it."""
    groups: dict[tuple[bool, str], list[EstimatedGuesses]] = {}
    for each in used:
        groups.setdefault((each.estimate.correct, _level(each.estimate)), []).append(each)
    return {
        _sentence(correct, level, same): sum(each.guesses for each in same)
        for (correct, level), same in sorted(groups.items())
    }


def _level(estimate: Estimate) -> str:
    if estimate.tool:
        return "its tool and workflow type"
    if estimate.workflow_type:
        return "its workflow type"
    return "its tenant" if estimate.tenant else "the log"


def _sentence(correct: bool, level: str, same: Iterable[EstimatedGuesses]) -> str:
    found = [each.estimate for each in same]
    recorded, values = sum(each.recorded for each in found), [each.ms for each in found]
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    interval = f"{low} ms" if low == high else f"{low} to {high} ms"
    of, many = f"of {level}, {interval}", f"{recorded:,} recorded"
    if correct:
        return f"a hit without a recorded gain saves the mean gain of the hits {of} ({many})"
    return f"a miss without a recorded cost wastes the mean cost of the misses {of} ({many})"
