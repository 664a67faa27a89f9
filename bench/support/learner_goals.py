"""What the learners must reach on seeds that no parameter was chosen on: the least there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from learners.registry import DEFAULT

LEAST: Final[Mapping[str, Mapping[str, float]]] = {
    DEFAULT: {
        "calibrated": 0.98,
        "overconfident": 0.96,
        "overconfident, worst": 0.90,
        "recovered 500 after drift": 0.95,
        "delay 100": 0.95,
        "sparse": 0.90,
        "sparse, rare leaves": 0.85,
        "uneven": 0.98,
        "traces, r 0.5": 0.91,
        "traces, r 0.7": 0.81,
        "airline, r 0.5": 0.80,
        "airline, r 0.7": 0.79,
        "airline, evidence, r 0.7": 0.79,
    },
    "hops_target": {"within .05 of the target": 0.90},
}
"""By policy and figure of `bench.learn`."""
MOST_US: Final = {DEFAULT: 8.0, "ema": 4.0, "td": 4.0}
"""Microseconds: of the default an outcome through four levels with a threshold, else without."""
SPEED: Final = "us of an outcome"


class Goal(NamedTuple):
    """One goal: the figure, its bound, and its value."""

    policy: str
    figure: str
    wanted: float
    found: float
    met: bool


def goals(policies: Mapping[str, Mapping[str, Any]]) -> list[Goal]:
    """Return every goal that something was measured for."""
    return list(_goals(policies))


def _goals(policies: Mapping[str, Mapping[str, Any]]) -> Iterator[Goal]:
    for policy, wanted in LEAST.items():
        figures = policies.get(policy, {})
        for figure, least in wanted.items():
            if figure in figures:
                yield Goal(policy, figure, least, figures[figure], figures[figure] >= least)
    for policy, most in MOST_US.items():
        if policy in policies:
            figures = policies[policy]
            found = figures["us per update of 4 levels"]
            if policy == DEFAULT:
                found = round(found + figures["us per threshold"], 2)
            yield Goal(policy, SPEED, most, found, found <= most)
