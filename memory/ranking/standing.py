"""How well rankings have foreseen a tenant's runs: which one is used, and when none helps."""

from __future__ import annotations

from math import sqrt
from typing import Any, Final, NamedTuple

REMEMBERED: Final = 0.998
"""Share of a sum that is left after one more run: what was right long ago counts less."""
CLEAR: Final = 0.5
"""Standard errors that a gain must exceed to count as one."""
LEAST_RUNS: Final = 32
"""Judged runs below which no policy is used."""
LEAST_OF_KIND: Final = 8
"""Judged runs of a workflow type below which cases are shown, whatever they were worth."""
MOST_KINDS: Final = 64
"""Workflow types whose standing is kept: the ones that were judged last."""


class DiscountedGain:
    """What one rule has gained over another: sums over runs, in which old runs count less."""

    def __init__(self, weight: float = 0.0, gain: float = 0.0, square: float = 0.0) -> None:
        self.weight, self.gain, self.square = weight, gain, square

    def learn(self, gain: float) -> None:
        """Add the gain of a run, -1 to 1."""
        self.weight = REMEMBERED * self.weight + 1.0
        self.gain = REMEMBERED * self.gain + gain
        self.square = REMEMBERED * self.square + gain * gain

    @property
    def mean(self) -> float:
        """The mean gain of a run; 0 before any."""
        return self.gain / (self.weight or 1.0)

    @property
    def standard_error(self) -> float:
        """The standard error of `mean`; 0 before any run."""
        weight = self.weight or 1.0
        return sqrt(max(0.0, self.square / weight - self.mean * self.mean) / weight)

    @property
    def lead(self) -> float:
        """The mean gain less `CLEAR` standard errors: above 0 if it is clear."""
        return self.mean - CLEAR * self.standard_error

    def to_json(self) -> list[float]:
        """Return the sums, from which it is made again to the bit."""
        return [self.weight, self.gain, self.square]


class JudgedRankings(NamedTuple):
    """How right each was for one run: half how alike, half whether equal."""

    policy: float
    """0 to 1, on the calls after the first, as the next two."""
    similarity: float
    usual: float
    """The usual course after the run's first tool, without any search."""
    gain: float
    """How much more right the policy was than similarity on the whole course, -1 to 1."""


class Standing:
    """Sums over judged runs, in which a run counts less the older it is."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        given = state or {}
        self.runs: int = given.get("runs", 0)
        self._sums: list[float] = list(given.get("sums", (0.0, 0.0, 0.0)))
        self._gain = DiscountedGain(
            given.get("weight", 0.0), given.get("gain", 0.0), given.get("square", 0.0)
        )
        self._kinds: dict[str, list[DiscountedGain]] = {
            kind: [DiscountedGain(*sums) for sums in gains]
            for kind, gains in given.get("over_usual", {}).items()
        }

    def add(self, kind: str, judged: JudgedRankings) -> None:
        """Add a run of a workflow type."""
        self.runs += 1
        self._sums = [
            REMEMBERED * old + new for old, new in zip(self._sums, judged[:3], strict=True)
        ]
        self._gain.learn(judged.gain)
        of_kind = self._kinds.pop(kind, None) or [DiscountedGain(), DiscountedGain()]
        for gain, right in zip(of_kind, judged[:2], strict=True):
            gain.learn(right - judged.usual)
        self._kinds[kind] = of_kind  # the last one of the order
        if len(self._kinds) > MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]

    @property
    def beats_similarity(self) -> bool:
        """Whether the policy's gain is over its standard error, of `LEAST_RUNS` or more."""
        return self.runs >= LEAST_RUNS and self._gain.mean > self._gain.standard_error

    def helps(self, kind: str, *, policy: bool) -> bool:
        """Return whether cases are worth showing: the gain over the usual course is clear.

        Also where they are worth exactly as much, and where little is known of a workflow type.
        """
        gains = self._kinds.get(kind)
        if gains is None:
            return True
        gain = gains[0 if policy else 1]
        return gain.weight < LEAST_OF_KIND or gain.lead >= 0.0

    def metrics(self) -> dict[str, Any]:
        """Return the figures of a version: mean rightness of each, and the policy's gain.

        The first three are of the calls after the first, the gain of whole courses.
        """
        weight = self._gain.weight or 1.0
        policy, similarity, usual = (value / weight for value in self._sums)
        return {
            "runs": self.runs,
            "policy": policy,
            "similarity": similarity,
            "usual": usual,
            "gain": self._gain.mean,
            "standard_error": self._gain.standard_error,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, from which it is made again to the bit."""
        weight, gain, square = self._gain.to_json()
        kinds = {kind: [gain.to_json() for gain in gains] for kind, gains in self._kinds.items()}
        return {
            "runs": self.runs, "weight": weight, "sums": self._sums, "gain": gain,
            "square": square, "over_usual": kinds,
        }  # fmt: skip
