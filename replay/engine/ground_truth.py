"""Figures of the predictions that do not depend on the policy: hindsight, reliability, drift."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, compress
from typing import Final

import msgspec

from replay.predictions.blocks import Block
from replay.predictions.utility import best_fixed

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
    """A detected change. `better`: towards more right predictions.

    `at`: event time, Unix ms; `number`: of the prediction within its unit.
    """

    context: int
    at: int
    number: int
    better: bool


class Hindsight:
    """By context: what the best fixed threshold and always starting would have earned, and how
    many predictions were right."""

    def __init__(self) -> None:
        self._values: dict[int, array[float]] = {}
        self._count = 0
        self.exact = True
        self.always: dict[int, float] = {}
        self.right: dict[int, int] = {}

    def add(self, block: Block) -> None:
        """Add a block."""
        values, always, right, exact = self._values, self.always, self.right, self.exact
        for leaf, worths, confidences, rights in _startable(block):
            own = values.get(leaf)
            if own is None:
                own = values[leaf] = array("d") if exact else _grid()
                always[leaf], right[leaf] = 0.0, 0
            always[leaf] = sum(worths, always[leaf])
            right[leaf] = sum(rights, right[leaf])
            if exact:
                own.extend(chain.from_iterable(zip(confidences, worths, strict=True)))
            else:
                for confidence, worth in zip(confidences, worths, strict=True):
                    own[int(confidence * BINS)] += worth
        self._count += len(block) - len(block.not_startable)
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
        """Return what a context's best threshold earns; 0 where starting nothing is best."""
        own = self._values.get(leaf)
        if own is None:
            return 0.0
        if self.exact:
            return best_fixed(zip(own[::2], own[1::2], strict=True))
        return best_fixed(enumerate(own))


def _startable(
    block: Block,
) -> Iterator[tuple[int, Sequence[float], Sequence[float], Sequence[bool]]]:
    """Yield each finest context with worth, confidence and outcome of what could be started."""
    for leaf, worths in block.worths.items():
        run = block.runs[leaf]
        columns = worths, run.confidence, run.correct
        if block.not_startable:
            chosen = [block.startable[place] for place in block.places[leaf]]
            if not all(chosen):
                columns = tuple(list(compress(each, chosen)) for each in columns)  # type: ignore[assignment]
        yield leaf, *columns


def _grid() -> array[float]:
    return array("d", bytes(8 * (BINS + 1)))


class Reliability:
    """Confidence against outcome, in bins."""

    def __init__(self) -> None:
        self._counts = [0] * (BINS + 1)
        self._right = [0] * (BINS + 1)
        self._confidence, self._gain, self._cost = ([0.0] * (BINS + 1) for _ in range(3))

    @property
    def bins(self) -> list[Bin]:
        """The bins, a hundredth each; the last one has a confidence of 1."""
        columns = self._counts, self._right, self._confidence, self._gain, self._cost
        return [Bin(*each) for each in zip(*columns, strict=True)]

    def add(self, block: Block) -> None:
        """Add a block."""
        counts, rights, sums = self._counts, self._right, self._confidence
        gains, costs = self._gain, self._cost
        rows = zip(block.confidence, block.correct, block.worth, strict=True)
        for confidence, correct, worth in (
            compress(rows, block.startable) if block.not_startable else rows
        ):
            own = int(confidence * BINS)
            counts[own] += 1
            sums[own] += confidence
            if correct:
                rights[own] += 1
                gains[own] += worth
            else:
                costs[own] -= worth


class Drifts:
    """Page-Hinkley (1954) on outcome minus confidence, two-sided, for each workflow type."""

    def __init__(self) -> None:
        self.found: list[Drift] = []
        self._tests: dict[int, tuple[float, float, float, float]] = {}
        self._seen = 0

    def add(self, block: Block) -> None:
        """Add a block."""
        found: list[Drift] = []
        for place, places, run in block.watched():
            count, mean, up, down = self._tests.get(place, (0.0, 0.0, 0.0, 0.0))
            for nth, confidence, correct in zip(places, run.confidence, run.correct, strict=True):
                error = (1.0 - confidence) if correct else -confidence
                count += 1.0
                mean += (error - mean) / count
                away = error - mean
                up = up + away - SLACK
                if up < 0.0:
                    up = 0.0
                down = down - away - SLACK
                if down < 0.0:
                    down = 0.0
                if up > ALARM or down > ALARM:
                    found.append(Drift(place, block.at(nth), self._seen + nth + 1, up > ALARM))
                    count = mean = up = down = 0.0
            self._tests[place] = count, mean, up, down
        self._seen += len(block)
        if found:
            found.sort(key=lambda each: each.number)
            self.found += found[: MOST_DRIFTS - len(self.found)]


def merged(parts: Sequence[Sequence[Bin]]) -> list[Bin]:
    """Return the sums of several partitions' bins."""
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
