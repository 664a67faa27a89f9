"""Clusters of cases that took the same course: what an evidence set consists of.

A cluster says what was done (its canonical sequence), how often, with what success and how sure
that is, and one case that did the same kind of thing and failed, as a contrast.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import sqrt
from typing import Final, NamedTuple

from memory.cases.case import Case
from memory.cases.writers import independent_count

CLUSTERS: Final = 4
"""Clusters of an evidence set."""
CONFIRMING: Final = 2
"""Writers that confirm a course, if the run's own one is not among them."""
SUCCESS: Final = 1.0
_QUANTILE: Final = 1.959964
"""Of the normal distribution, for an interval of 95 %."""


class CaseCluster(NamedTuple):
    """Cases with the same sequence of tools. `weight`: their share of the votes, 0 to 1.

    `support`: how many runs, `writers`: of how many independent writers. `confirmed`: of two or
    more, or of the run's own one (`is_confirmed`). `success_rate` with its 95 % interval counts the
    runs with a known reward; None without any. `contrast`: a failed case.
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
    sequences = [case.tools for case in cases]
    members: dict[tuple[str, ...], list[int]] = {}
    for place, tools in enumerate(sequences):
        members.setdefault(tools, []).append(place)
    total = sum(weights) or 1.0
    shares = {tools: sum(weights[p] for p in places) / total for tools, places in members.items()}
    confirmed = {
        tools: is_confirmed({cases[place].writer for place in places}, writer)
        for tools, places in members.items()
    }
    best = sorted(
        members,
        key=lambda tools: (not confirmed[tools], -round(shares[tools], 9), members[tools][0]),
    )
    failed = [
        place
        for place, case in enumerate(cases)
        if case.reward is not None and case.reward < SUCCESS
    ]
    return [
        _cluster([cases[place] for place in members[tools]], shares[tools], confirmed[tools])
        ._replace(contrast=_contrast(tools, [(sequences[p], cases[p]) for p in failed]))
        for tools in best[:limit]
    ]  # fmt: skip


def is_confirmed(writers: Collection[str], writer: str = "") -> bool:
    """Return whether those who took a course suffice for it to be followed.

    Two independent writers do, or the run's own one (`writer`, "" if unknown). One other alone may
    be wrong, or may mean harm: its course is only shown, as unconfirmed, and must not lead to
    speculation.
    """
    return independent_count(writers) >= CONFIRMING or (bool(writer) and writer in writers)


def _cluster(own: Sequence[Case], weight: float, confirmed: bool) -> CaseCluster:
    known = [(case.reward, case.support) for case in own if case.reward is not None]
    runs = sum(support for _, support in known)
    successes = sum(support for reward, support in known if reward >= SUCCESS)
    return CaseCluster(
        sequence=own[0].tools,
        weight=weight,
        support=sum(case.support for case in own),
        writers=independent_count(case.writer for case in own),
        confirmed=confirmed,
        success_rate=successes / runs if runs else None,
        success_interval=wilson_interval(successes, runs) if runs else None,
        examples=tuple(own),
        contrast=None,
    )


def _contrast(
    tools: tuple[str, ...], failed: Sequence[tuple[tuple[str, ...], Case]]
) -> Case | None:
    """Return a failed case: of the cluster, else the best one that began with the same tool."""
    same = (case for sequence, case in failed if sequence == tools)
    alike = (case for sequence, case in failed if sequence[:1] == tools[:1])
    return next(same, None) or next(alike, None)


def wilson_interval(successes: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927); `count` must not be 0."""
    share, square = successes / count, _QUANTILE**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _QUANTILE / (1 + square / count)
    half *= sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)
