"""Declared tool latencies: what a call takes, what a hit saves, what a miss wastes.

For the synthetic workload, and for recorded runs without durations (`call_times`). They are
accounted, never slept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

DEFAULT_COST_RATIO: Final = 0.6
"""cost / (cost + gain): the confidence above which a calibrated guess is worth starting."""

_FASTEST_MS, _SLOWEST_MS = 80.0, 2_000.0
"""Medians of the tools lie between a database look-up and a slow third party's API."""

_SPREAD: Final = 0.35
"""Sigma of ln(execution_ms) about its tool's median: 95 % of the calls within a factor of two."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One tool call in milliseconds: its execution, the gain of a hit, the cost of a miss."""

    execution_ms: float
    gain_ms: float
    cost_ms: float


class LatencyModel:
    """Seeded latencies: a tool's median depends on (seed, tool), a call on its executor's stream.

    execution_ms is lognormal about the median. A hit hides the whole call, so gain_ms is its
    execution_ms; cost_ms = gain_ms * r / (1 - r), with r the cost ratio, in (0, 1). So
    cost / (cost + gain) = r for every call, and r is the best threshold of a calibrated confidence.
    """

    def __init__(
        self, seed: int, executor: int = 0, cost_ratio: float = DEFAULT_COST_RATIO
    ) -> None:
        if not 0 < cost_ratio < 1:
            raise ValueError(f"the cost ratio must be above 0 and below 1: {cost_ratio}")
        self._seed = seed
        self.cost_per_gain = cost_ratio / (1 - cost_ratio)
        """What a miss wastes, as a multiple of what a hit of the same call would save."""
        self._calls = Random(f"latency/{seed}/{executor}")
        self._medians: dict[str, float] = {}

    def median_ms(self, tool: str) -> float:
        """Return the median execution time of a tool in milliseconds, the same in any executor."""
        if (median := self._medians.get(tool)) is None:
            share = Random(f"latency/{self._seed}/tool/{tool}").random()
            median = _FASTEST_MS * (_SLOWEST_MS / _FASTEST_MS) ** share
            self._medians[tool] = median
        return median

    def draw(self, tool: str) -> Latency:
        """Draw the latency of the next call of a tool (of a guess: the tool that is guessed)."""
        execution = self._calls.lognormvariate(math.log(self.median_ms(tool)), _SPREAD)
        return Latency(execution, gain_ms=execution, cost_ms=execution * self.cost_per_gain)
