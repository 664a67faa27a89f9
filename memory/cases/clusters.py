"""Clusters of cases that took the same course: what an evidence set consists of.

A cluster says what was done (its canonical sequence), how often, with what success and how sure
that is, and one case that did the same kind of thing and failed, as a contrast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Final, NamedTuple

from memory.cases.case import Case

CLUSTERS: Final = 4
"""Clusters of an evidence set."""
CONFIRMING: Final = 2
"""Writers that confirm a course, if the run's own one is not among them."""
SUCCESS: Final = 1.0
_QUANTILE: Final = 1.959964
"""Of the normal distribution, for an interval of 95 %."""


class CaseCluster(NamedTuple):
    """Cases with the same sequence of tools. `weight`: their share of the votes, 0 to 1.

    `support`: how many cases, `writers`: of how many writers. `confirmed`: of two writers or more,
    or of the run's own one; one other writer alone may be wrong, or may mean harm. `success_rate` with its 95 %
    interval counts the cases with a known reward; None without any. `contrast`: a failed case.
    """

    sequence: tuple[str, ...]
    weight: float
    support: int
    writers: int
    confirmed: bool
    success_rate: float | None
    success_interval: tuple[float, float] | None
    examples: tuple[Case, ...]
    contrast: Case | None


def clusters(
    cases: Sequence[Case], weights: Sequence[float], limit: int = CLUSTERS, writer: str = ""
) -> list[CaseCluster]:
    """Return the clusters of ranked cases: confirmed ones first, then the highest weight.

    `cases`: best first, with their votes. Of equal weights the one of the better case comes first.
    `writer`: of the run that asks, "" if unknown.
    """
    members: dict[tuple[str, ...], list[int]] = {}
    for place, case in enumerate(cases):
        members.setdefault(case.tools, []).append(place)
    total = sum(weights) or 1.0
    shares = {tools: sum(weights[p] for p in places) / total for tools, places in members.items()}
    found = [
        _cluster([cases[place] for place in members[tools]], shares[tools], cases, writer)
        for tools in sorted(members, key=lambda each: (-round(shares[each], 9), members[each][0]))
    ]
    return sorted(found, key=lambda each: not each.confirmed)[:limit]


def _cluster(
    own: Sequence[Case], weight: float, ranked: Iterable[Case], writer: str
) -> CaseCluster:
    writers = {case.writer for case in own}
    rewards = [case.reward for case in own if case.reward is not None]
    successes = sum(reward >= SUCCESS for reward in rewards)
    return CaseCluster(
        sequence=own[0].tools,
        weight=weight,
        support=len(own),
        writers=len(writers),
        confirmed=len(writers) >= CONFIRMING or bool(writer) and writer in writers,
        success_rate=successes / len(rewards) if rewards else None,
        success_interval=wilson_interval(successes, len(rewards)) if rewards else None,
        examples=tuple(own),
        contrast=_contrast(own, ranked),
    )


def _contrast(own: Sequence[Case], ranked: Iterable[Case]) -> Case | None:
    """Return a failed case: of the cluster, else the best one that began with the same tool."""
    failed = [case for case in ranked if case.reward is not None and case.reward < SUCCESS]
    same = [case for case in failed if case.tools == own[0].tools]
    alike = [case for case in failed if case.tools[:1] == own[0].tools[:1]]
    return next(iter(same or alike), None)


def wilson_interval(successes: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927); `count` must not be 0."""
    share, square = successes / count, _QUANTILE**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _QUANTILE / (1 + square / count)
    half *= sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)
