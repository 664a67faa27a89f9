"""How thresholds and gains went over time: the courses of several units, put on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from replay.engine.engine import LIVE
from replay.results.unit_results import PartSums

POINTS: Final = 160
"""Points of a course in the report."""


def timelines(parts: Sequence[PartSums], names: Sequence[str]) -> dict[str, Any]:
    """Return by policy: mean threshold in force, gain so far, share of hits; with one time axis.

    `at`: event time (Unix ms), or the number of the prediction where events have no time, of each
    point's end; `counts`: predictions of each point.
    """
    rows = sorted(
        (at, unit, place) for unit, part in enumerate(parts) for place, at in enumerate(part.at)
    )
    total = sum(sum(part.counts) for part in parts)
    timed = any(at > 0 for at, _, _ in rows)
    edges: list[float] = []
    counts: list[int] = []
    sums: dict[str, list[list[float]]] = {name: [] for name in names}
    seen = 0
    for at, unit, place in rows:
        count = parts[unit].counts[place]
        if not counts or seen >= len(counts) * total / POINTS:
            counts.append(0)
            edges.append(0.0)
            for name in names:
                sums[name].append([0.0, 0.0, 0.0, 0.0])
        seen += count
        counts[-1] += count
        edges[-1] = at if timed else seen
        for name in names:
            point, into = parts[unit].arms[name].points[place], sums[name][-1]
            for column, value in enumerate(
                (point.started, point.hits, point.utility, point.threshold)
            ):
                into[column] += value
    return {
        "timed": timed,
        "at": edges,
        "counts": counts,
        "policies": {name: _course(sums[name], counts, threshold=name != LIVE) for name in names},
    }


def _course(
    sums: Sequence[Sequence[float]], counts: Sequence[int], *, threshold: bool
) -> dict[str, list[float | None]]:
    gained, so_far = [], 0.0
    for _, _, utility, _ in sums:
        so_far += utility
        gained.append(so_far)
    return {
        "gained": list[float | None](gained),
        "threshold": [
            each[3] / count if threshold and count else None
            for each, count in zip(sums, counts, strict=True)
        ],
        "success": [each[1] / each[0] if each[0] else None for each in sums],
    }
