"""Compares the demo's policies: payoffs with intervals, and their development over time. Pure.

Every policy is evaluated on every prediction (full feedback). `demo.report` renders the result,
`demo.accounting` summarises it for the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from math import inf
from typing import Any, Final

from demo.accounting import (
    FIXED_THRESHOLD,
    JudgedGuess,
    Policy,
    always,
    as_executed,
    fixed,
    never,
    startable,
)
from headstart.experiments import GROUPS, workflow_group
from replay.engine.ground_truth import BINS
from replay.results.bootstrap import Bootstrap, Interval

LEARNED: Final = "learned"
POLICIES: Final[Mapping[str, Policy]] = {
    LEARNED: as_executed,
    f"fixed {FIXED_THRESHOLD:.2f}": fixed,
    "always": always,
    "never": never,
}
"""The policies that were possible without hindsight."""
POINTS: Final = 160
"""Points of a course."""


def compare(judged: Sequence[JudgedGuess]) -> dict[str, Any]:
    """Return the best policy, its lead with an interval, timelines, contexts and confidences.

    Amounts are in milliseconds, places in time in seconds since the first prediction. The winner
    is one of `POLICIES`; the best constant is known in hindsight only, so it is not a policy.
    Guesses that no policy could have started are counted (`not_startable`), and in no other figure.
    """
    rows = sorted(startable(judged), key=lambda each: (each.at, each.workflow))
    reasons = Counter(each.not_startable for each in judged if each.not_startable)
    assumed = Counter(each.assumed for each in rows if each.assumed)
    constant = best_constant(rows)

    def hindsight(each: JudgedGuess) -> bool:
        return each.confidence >= constant

    arms: dict[str, Policy] = {**POLICIES, "hindsight": hindsight}
    bootstrap = _bootstrap(rows, arms)
    utility = {name: sum(each.worth_ms for each in rows if arm(each)) for name, arm in arms.items()}
    policies = {
        name: {**_counts(rows, POLICIES[name]), "utility": utility[name],
               "interval": _ends(bootstrap.of(name, utility[name]))}
        for name in POLICIES
    }  # fmt: skip
    winner, second = sorted(POLICIES, key=lambda name: -utility[name])[:2]
    other = second if winner == LEARNED else LEARNED
    lead = bootstrap.difference(winner, other, utility[winner] - utility[other])
    behind = bootstrap.difference("hindsight", LEARNED, utility["hindsight"] - utility[LEARNED])
    return {
        "predictions": len(rows),
        "workflows": len({each.workflow for each in rows}),
        "policies": policies,
        "winner": winner,
        "against": other,
        "lead": lead.value,
        "lead_interval": _ends(lead),
        "best_fixed": utility["hindsight"],
        "best_constant": constant,
        "behind_interval": _ends(behind),
        **_over_time(rows, arms),
        "contexts": list(_contexts(rows)),
        "bins": _bins(rows),
        "not_startable": {"guesses": reasons.total(), "reasons": dict(sorted(reasons.items()))},
        "unpriced": 0,
        "assumptions": [{"assumed": what, "guesses": n} for what, n in sorted(assumed.items())],
    }


def best_constant(judged: Sequence[JudgedGuess]) -> float:
    """Return the one threshold that would have earned most, known when all is over.

    Infinite where starting nothing is best.
    """
    falling = sorted(judged, key=lambda each: -each.confidence)
    best, found, total = 0.0, inf, 0.0
    for confidence, equals in groupby(falling, key=lambda each: each.confidence):
        total += sum(each.worth_ms for each in equals)
        if total > best:
            best, found = total, confidence
    return found


def _bootstrap(rows: Sequence[JudgedGuess], arms: Mapping[str, Policy]) -> Bootstrap:
    members = [0] * GROUPS
    sums = {name: [0.0] * GROUPS for name in arms}
    for each in rows:
        group = workflow_group(each.workflow)
        members[group] += 1
        for name, arm in arms.items():
            if arm(each):
                sums[name][group] += each.worth_ms
    bootstrap = Bootstrap(members)
    bootstrap.add(sums)
    return bootstrap


def _ends(interval: Interval) -> list[float] | None:
    return None if interval.low is None or interval.high is None else [interval.low, interval.high]


def _counts(rows: Sequence[JudgedGuess], policy: Policy) -> dict[str, Any]:
    started = [each.correct for each in rows if policy(each)]
    hits = sum(started)
    return {
        "hits": hits,
        "misses": len(started) - hits,
        "hit_rate": hits / len(started) if started else None,
    }


def _over_time(rows: Sequence[JudgedGuess], arms: Mapping[str, Policy]) -> dict[str, Any]:
    """Return the cumulative payoff and the hit rate of each policy, in about equal time steps."""
    size = max(1, -(-len(rows) // POINTS))
    shares = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
    first = rows[0].at if rows else 0
    courses = {
        name: list(
            accumulate(sum(each.worth_ms for each in share if arm(each)) for share in shares)
        )
        for name, arm in arms.items()
    }
    return {
        "at": [(share[-1].at - first) / 1000 for share in shares],
        "gained": courses,
        "hit_rates": {
            "learned": _hit_rates(shares, as_executed), "every guess": _hit_rates(shares, always)
        },
    }  # fmt: skip


def _hit_rates(shares: Sequence[Sequence[JudgedGuess]], policy: Policy) -> list[float | None]:
    """Return hits / started of each share with the four before it; None where too few."""
    started = [[each.correct for each in share if policy(each)] for share in shares]
    found: list[float | None] = []
    for place in range(len(started)):
        window = [hit for share in started[max(0, place - 4) : place + 1] for hit in share]
        found.append(sum(window) / len(window) if len(window) >= 10 else None)
    return found


def _contexts(rows: Sequence[JudgedGuess]) -> Iterator[dict[str, Any]]:
    """Yield each context with its decisions over time, those with most predictions first."""
    by_path: dict[str, list[JudgedGuess]] = {}
    for each in rows:
        by_path.setdefault(each.path, []).append(each)
    first = rows[0].at if rows else 0
    for path in sorted(by_path, key=lambda path: (-len(by_path[path]), path)):
        own = by_path[path]
        yield {
            "path": path,
            "predictions": len(own),
            **_counts(own, as_executed),
            "utility": sum(each.worth_ms for each in own if each.speculated),
            "decisions": [
                ((each.at - first) / 1000, each.threshold, each.speculated, each.correct)
                for each in own
            ],
        }


def _bins(rows: Sequence[JudgedGuess]) -> list[dict[str, float | None]]:
    """Return how many predictions each bin of confidences has, how many were right, their mean."""
    bins = [{"count": 0.0, "right": 0.0, "confidence": 0.0} for _ in range(BINS + 1)]
    for each in rows:
        own = bins[int(each.confidence * BINS)]
        own["count"] += 1
        own["right"] += each.correct
        own["confidence"] += each.confidence
    return [
        {**own, "confidence": own["confidence"] / own["count"] if own["count"] else None}
        for own in bins
    ]
