"""What the predictions themselves say, whatever the policy: hindsight, reliability, drift."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from replay.blocks import Block
from replay.score import best_fixed

BINS: Final = 100
"""Bins of the confidence, each a hundredth."""
EXACT: Final = 2_000_000
"""Predictions up to which the best threshold in hindsight is exact; then to a hundredth."""
SLACK: Final = 0.05
ALARM: Final = 10.0
MOST_DRIFTS: Final = 200


class Bin(msgspec.Struct, array_like=True, gc=False):
    """Predictions of a hundredth of confidence. `gain`: of the right ones; `cost`: of the wrong."""

    count: int = 0
    right: int = 0
    confidence: float = 0.0
    gain: float = 0.0
    cost: float = 0.0


class Drift(msgspec.Struct, array_like=True, gc=False):
    """A change found: where, when, and whether for the better.

    `at`: event time, Unix ms; `number`: of the prediction within its unit.
    """

    context: int
    at: int
    number: int
    better: bool


class Hindsight:
    """What the best fixed threshold of each context would have earned, and always."""

    def __init__(self) -> None:
        self._values: dict[int, array[float]] = {}
        self._count = 0
        self.exact = True
        self.always: dict[int, float] = {}

    def add(self, block: Block) -> None:
        """Add a block."""
        values, always, exact = self._values, self.always, self.exact
        for leaf, confidence, worth in zip(block.leaf, block.confidence, block.worth, strict=True):
            own = values.get(leaf)
            if own is None:
                own = values[leaf] = array("d") if exact else _grid()
                always[leaf] = 0.0
            always[leaf] += worth
            if exact:
                own.append(confidence)
                own.append(worth)
            else:
                own[int(confidence * BINS)] += worth
        self._count += len(block)
        if exact and self._count > EXACT:
            self._coarsen()

    def _coarsen(self) -> None:
        self.exact = False
        for leaf, own in self._values.items():
            grid = _grid()
            for place in range(0, len(own), 2):
                grid[int(own[place] * BINS)] += own[place + 1]
            self._values[leaf] = grid

    def best(self, leaf: int) -> float:
        """Return what a context's best threshold earns; refusing everything is among them."""
        own = self._values.get(leaf)
        if own is None:
            return 0.0
        if self.exact:
            return best_fixed(zip(own[::2], own[1::2], strict=True))
        return best_fixed(enumerate(own))


def _grid() -> array[float]:
    return array("d", bytes(8 * (BINS + 1)))


class Reliability:
    """Confidence against truth, in bins."""

    def __init__(self) -> None:
        self.bins = [Bin() for _ in range(BINS + 1)]

    def add(self, block: Block) -> None:
        """Add a block."""
        bins = self.bins
        for confidence, correct, worth in zip(
            block.confidence, block.correct, block.worth, strict=True
        ):
            own = bins[int(confidence * BINS)]
            own.count += 1
            own.confidence += confidence
            if correct:
                own.right += 1
                own.gain += worth
            else:
                own.cost -= worth


class Drifts:
    """Page-Hinkley (1954) on truth minus confidence, both sides, one for each workflow type."""

    def __init__(self) -> None:
        self.found: list[Drift] = []
        self._tests: dict[int, list[float]] = {}
        self._seen = 0

    def add(self, places: Iterable[int], block: Block) -> None:
        """Add a block; `places`: the context that is watched, by prediction."""
        tests = self._tests
        for place, confidence, correct in zip(places, block.confidence, block.correct, strict=True):
            self._seen += 1
            test = tests.get(place)
            if test is None:
                test = tests[place] = [0.0, 0.0, 0.0, 0.0]
            error = (1.0 - confidence) if correct else -confidence
            test[0] += 1.0
            test[1] += (error - test[1]) / test[0]
            away = error - test[1]
            up = test[2] = max(0.0, test[2] + away - SLACK)
            down = test[3] = max(0.0, test[3] - away - SLACK)
            if up > ALARM or down > ALARM:
                if len(self.found) < MOST_DRIFTS:
                    self.found.append(Drift(place, block.at, self._seen, up > ALARM))
                test[0] = test[1] = test[2] = test[3] = 0.0


def merged(parts: Sequence[Sequence[Bin]]) -> list[Bin]:
    """Return the bins of several partitions added up."""
    return [
        Bin(
            sum(each.count for each in same),
            sum(each.right for each in same),
            sum(each.confidence for each in same),
            sum(each.gain for each in same),
            sum(each.cost for each in same),
        )
        for same in zip(*parts, strict=True)
    ]
