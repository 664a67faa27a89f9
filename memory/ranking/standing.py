"""How well rankings have foreseen a tenant's runs: which one is used, and when none helps."""

from __future__ import annotations

from math import sqrt
from typing import Any, Final, NamedTuple

from memory.ranking.choice import MARGIN, REMEMBERED

LEAST_RUNS: Final = 32
"""Judged runs below which no policy is used."""
MOST_KINDS: Final = 64
"""Workflow types whose standing is kept: the ones that were judged last."""


class JudgedRankings(NamedTuple):
    """How right each was for one run, 0 to 1: half how alike, half whether equal."""

    policy: float
    similarity: float
    usual: float
    """The medoid of the newest runs of the workflow type, without any search."""


class Standing:
    """Sums over judged runs, in which a run counts less the older it is."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        given = state or {}
        self.runs: int = given.get("runs", 0)
        self._weight: float = given.get("weight", 0.0)
        self._sums: list[float] = list(given.get("sums", (0.0, 0.0, 0.0)))
        self._gain: float = given.get("gain", 0.0)
        self._square: float = given.get("square", 0.0)
        self._kinds: dict[str, list[float]] = {
            kind: list(sums) for kind, sums in given.get("kinds", {}).items()
        }

    def add(self, kind: str, judged: JudgedRankings) -> None:
        """Add a run of a workflow type."""
        self.runs += 1
        self._weight = REMEMBERED * self._weight + 1.0
        self._sums = _added(self._sums, judged)
        gain = judged.policy - judged.similarity
        self._gain = REMEMBERED * self._gain + gain
        self._square = REMEMBERED * self._square + gain * gain
        before = self._kinds.pop(kind, [0.0, 0.0, 0.0])
        self._kinds[kind] = _added(before, judged)  # the last one of the order
        if len(self._kinds) > MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]

    @property
    def beats_similarity(self) -> bool:
        """Whether the policy's gain is over its standard error, of `LEAST_RUNS` or more."""
        figures = self.metrics()
        if self.runs < LEAST_RUNS:
            return False
        return bool(figures["gain"] > figures["standard_error"])

    def helps(self, kind: str, *, policy: bool) -> bool:
        """Return whether cases are worth showing: the usual course has not been clearly better."""
        sums = self._kinds.get(kind)
        return sums is None or sums[2] <= sums[0 if policy else 1] + MARGIN

    def metrics(self) -> dict[str, Any]:
        """Return the figures of a version: mean rightness of each, and the policy's gain."""
        weight = self._weight or 1.0
        gain = self._gain / weight
        variance = max(0.0, self._square / weight - gain * gain)
        policy, similarity, usual = (value / weight for value in self._sums)
        return {
            "runs": self.runs,
            "policy": policy,
            "similarity": similarity,
            "usual": usual,
            "gain": gain,
            "standard_error": sqrt(variance / weight),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, from which it is made again to the bit."""
        return {
            "runs": self.runs, "weight": self._weight, "sums": self._sums, "gain": self._gain,
            "square": self._square, "kinds": self._kinds,
        }  # fmt: skip


def _added(sums: list[float], judged: JudgedRankings) -> list[float]:
    return [REMEMBERED * old + new for old, new in zip(sums, judged, strict=True)]
