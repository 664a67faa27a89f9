"""The figures of one predictor in the order of one seed: over all domains, and by domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from replay.evaluation.figures import Figures, bins, coverage_curve, figures
from replay.evaluation.judged_point import JudgedPoint, PredictorCosts
from replay.evaluation.net_time import StartedPoint, started_points, time_saved


class SeedWork(NamedTuple):
    """What the figures of one seed are made from. `points`: in the order of their runs;
    `costs`: by domain; `ratios`, `read_only`: see `EvaluationPlan`."""

    predictor: str
    seed: int
    points: Sequence[JudgedPoint]
    costs: Mapping[str, PredictorCosts]
    ratios: Sequence[float]
    read_only: frozenset[str]


def seed_figures(work: SeedWork) -> Figures:
    """Return the figures, `domains` with the same of each domain, and what charts are made of."""
    started = {ratio: started_points(work.points, ratio) for ratio in work.ratios}
    by_domain: dict[str, list[JudgedPoint]] = {}
    for point in work.points:
        by_domain.setdefault(point.domain, []).append(point)
    return {
        **_figures(work.points, list(work.costs.values()), started, work.read_only),
        "domains": {
            domain: _figures(points, [work.costs[domain]], _only(started, domain), work.read_only)
            for domain, points in sorted(by_domain.items())
        },
        "bins": bins(work.points),
        "curve": coverage_curve(work.points),
    }


def _only(
    started: Mapping[float, Sequence[StartedPoint]], domain: str
) -> dict[float, list[StartedPoint]]:
    return {
        ratio: [each for each in points if each.point.domain == domain]
        for ratio, points in started.items()
    }


def _figures(
    points: Sequence[JudgedPoint],
    costs: Sequence[PredictorCosts],
    started: Mapping[float, Sequence[StartedPoint]],
    read_only: frozenset[str],
) -> Figures:
    decisions = max(1, sum(each.decisions for each in costs))

    def microseconds(nanoseconds: int) -> float:
        return nanoseconds / decisions / 1000.0

    return {
        "runs": len({point.run for point in points}),
        **figures(points),
        "guess_us": microseconds(sum(each.guessing for each in costs)),
        "learn_us": microseconds(sum(each.learning for each in costs)),
        "observe_us": microseconds(sum(each.observing for each in costs)),
        "state_bytes": max(each.state_bytes for each in costs),
        "net_time": {f"{ratio:g}": _saved(each, read_only) for ratio, each in started.items()},
    }


def _saved(started: Sequence[StartedPoint], read_only: frozenset[str]) -> dict[str, Any]:
    return {
        **time_saved(started),
        "read_only": time_saved(started, read_only.__contains__),
    }
