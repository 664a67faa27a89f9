"""The results of one unit: small, to be sent between processes and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from replay.engine.accumulators import Point, PolicyTotals
from replay.engine.engine import BacktestEngine
from replay.engine.ground_truth import Bin, Drift
from replay.engine.split_sums import SplitSums
from replay.predictions.estimates import EstimatedGuesses, PriceSum
from replay.predictions.notes import Notes

MOST_NAMED_CONTEXTS: Final = 500
"""Most contexts of a unit in the results, those with most predictions first."""
SETTLED: Final = 30
"""Least predictions of a context for its `since` to count."""


class ContextSums(msgspec.Struct, array_like=True, gc=False):
    """A policy in one context. `since`: predictions until its threshold was stable."""

    hits: int
    misses: int
    saved: float
    wasted: float
    turns: int
    since: int
    threshold: float
    windows: int
    in_band: int


class ArmSums(msgspec.Struct):
    """A policy in all contexts. `settled`: `since` of those with enough predictions."""

    hits: int
    misses: int
    saved: float
    wasted: float
    turns: int
    windows: int
    in_band: int
    groups: list[float]
    points: list[Point]
    settled: list[int]
    contexts: list[ContextSums]
    modes: list[int]
    nanoseconds: int = 0


class ContextTruth(msgspec.Struct, array_like=True, gc=False):
    """One context, whatever the policy. `right`: predictions that were."""

    tenant: str
    path: str
    predictions: int
    right: int
    best: float
    always: float


class Apart(msgspec.Struct):
    """Predictions that no policy could have started: by reason, and in each context of a part."""

    reasons: dict[str, int]
    contexts: list[int]


class PartSums(msgspec.Struct, omit_defaults=True):
    """One part of one unit. `apart`: predictions that no other figure includes, if any.

    `unsure`: of each policy that started guesses of estimated or unknown worth, the sums that make
    an `UnsureSums`.
    """

    predictions: int
    first: int
    last: int
    best: float
    exact: bool
    always: float
    at: list[int]
    counts: list[int]
    members: list[int]
    bins: list[Bin]
    drifts: list[tuple[str, str, Drift]]
    contexts: list[ContextTruth]
    known: int
    arms: dict[str, ArmSums]
    apart: Apart | None = None
    unsure: dict[str, list[float]] = {}


class UnitSums(msgspec.Struct, omit_defaults=True):
    """One unit: its parts (two where settings are searched), and counts of reading.

    `unpriced`, `assumed`, `estimated`, `prices`: see `assumptions.Basis`.
    `timeline`: times and counts of a `Timeline`, where they were asked for.
    """

    unit: int
    parts: list[PartSums]
    notes: Notes
    beyond: int
    seconds: float
    unpriced: int = 0
    assumed: dict[str, int] = {}
    timeline: tuple[list[int], list[int]] | None = None
    unpriced_misses: int = 0
    estimated: list[EstimatedGuesses] = []
    prices: list[PriceSum] = []


def unit_sums(unit: int, engine: BacktestEngine, notes: Notes, seconds: float) -> UnitSums:
    """Return the sums of an engine when all is read."""
    parts = [_part(engine, part) for part in engine.parts]
    for name, arm in engine.runners.items():
        parts[-1].arms[name].nanoseconds = arm.nanoseconds
    basis, times = engine.basis, engine.timeline
    return UnitSums(
        unit, parts, notes, engine.contexts.beyond, seconds, basis.unpriced, basis.assumed,
        None if times is None else (times.at, times.counts), basis.unpriced_misses,
        [EstimatedGuesses(*each) for each in basis.estimated.items()],
        [] if basis.prices is None else basis.prices.sums,
    )  # fmt: skip


def _part(engine: BacktestEngine, part: SplitSums) -> PartSums:
    leaves = [place for place, count in enumerate(part.counts) if count]
    best = {leaf: part.hindsight.best(leaf) for leaf in leaves}
    shown = nlargest(MOST_NAMED_CONTEXTS, leaves, key=lambda leaf: (part.counts[leaf], -leaf))
    places = engine.contexts.places
    return PartSums(
        predictions=sum(part.counts) - sum(part.not_startable.values()),
        first=part.first,
        last=part.last,
        best=sum(best.values()),
        exact=part.hindsight.exact,
        always=sum(part.hindsight.always.values()),
        at=part.buckets.at,
        counts=part.buckets.counts,
        members=part.members,
        bins=part.reliability.bins,
        drifts=[(*places[each.context], each) for each in part.drifts.found],
        contexts=[
            ContextTruth(
                *places[leaf],
                part.counts[leaf] - part.not_startable.get(leaf, 0),
                part.hindsight.right[leaf],
                best[leaf],
                part.hindsight.always[leaf],
            )
            for leaf in shown
        ],
        known=len(leaves),
        arms={
            name: _arm(tally, leaves, shown, part.counts, len(places))
            for name, tally in part.totals.items()
        },
        apart=_apart(part, shown),
        unsure={name: tally.unsure for name, tally in part.totals.items() if any(tally.unsure)},
    )


def _apart(part: SplitSums, shown: Sequence[int]) -> Apart | None:
    if not part.reasons:
        return None
    return Apart(part.reasons, [part.not_startable.get(leaf, 0) for leaf in shown])


def _arm(
    tally: PolicyTotals,
    leaves: Sequence[int],
    shown: Sequence[int],
    counts: Sequence[int],
    contexts: int,
) -> ArmSums:
    tally.grow(contexts)
    often = nlargest(10_000, (leaf for leaf in leaves if counts[leaf] >= SETTLED))
    return ArmSums(
        hits=sum(tally.hits),
        misses=sum(tally.misses),
        saved=sum(tally.saved),
        wasted=sum(tally.wasted),
        turns=sum(tally.turns),
        windows=sum(tally.windows),
        in_band=sum(tally.in_band),
        groups=tally.groups,
        points=tally.points,
        settled=[tally.since[leaf] for leaf in often],
        contexts=[
            ContextSums(
                tally.hits[leaf], tally.misses[leaf], tally.saved[leaf], tally.wasted[leaf],
                tally.turns[leaf], tally.since[leaf], tally.served[leaf], tally.windows[leaf],
                tally.in_band[leaf],
            )
            for leaf in shown
        ],
        modes=tally.modes,
    )  # fmt: skip


def joined(same: Sequence[UnitSums]) -> UnitSums:
    """Merge the results of several processes for one unit, each with policies of its own."""
    whole = same[0]
    for other in same[1:]:
        for part, more in zip(whole.parts, other.parts, strict=True):
            part.arms.update(more.arms)
            part.unsure.update(more.unsure)
        whole.seconds += other.seconds
    return whole


def by_unit(found: Mapping[str, UnitSums]) -> list[UnitSums]:
    """Return the sums by unit from those of all tasks."""
    units: dict[int, list[UnitSums]] = {}
    for each in found.values():
        units.setdefault(each.unit, []).append(each)
    return [joined(units[unit]) for unit in sorted(units)]
