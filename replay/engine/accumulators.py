"""Sums over a policy's answers, block by block, in memory bounded by the number of contexts.

Not here: adding up partitions (`replay.results.summary`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import ge
from typing import Final

import msgspec

from headstart.experiments import GROUPS
from learners.outcome import Outcome
from replay.engine.policy_runners import Answers
from replay.predictions.assumptions import AssumedOutcome
from replay.predictions.blocks import Block
from replay.predictions.utility import TURN

BAND: Final = (0.80, 0.90)
"""Target range of the share of hits."""
WINDOW: Final = 50
"""Speculations after which a context's share of hits is compared with the band."""
_ROWS: Final = 400
"""Most points of a series; then each two are merged."""
_STRETCH: Final = 1024
"""Most predictions of a time span, before merging."""


class Point(msgspec.Struct, array_like=True, gc=False):
    """One point of a policy's timeline: sums over the predictions of a time span."""

    started: int
    hits: int
    utility: float
    threshold: float

    def plus(self, other: Point) -> Point:
        """Return the sum of both."""
        return Point(
            self.started + other.started,
            self.hits + other.hits,
            self.utility + other.utility,
            self.threshold + other.threshold,
        )


class TimeBuckets:
    """The time spans of all policies' points; they grow with the log.

    `at`: event time of the first prediction (Unix ms); `counts`: predictions that count; `size`:
    predictions of the next span.
    """

    def __init__(self) -> None:
        self.at: list[int] = []
        self.counts: list[int] = []
        self.size = 16

    def add(self, at: int, count: int) -> bool:
        """Add a span; return whether each two were merged: then `halve` the points."""
        self.at.append(at)
        self.counts.append(count)
        if len(self.at) <= _ROWS:
            return False
        self.at = self.at[::2]
        self.counts = [sum(self.counts[n : n + 2]) for n in range(0, len(self.counts), 2)]
        self.size = min(2 * self.size, _STRETCH)
        return True


def halve(points: Sequence[Point]) -> list[Point]:
    """Return points with each two merged."""
    pairs = [points[n : n + 2] for n in range(0, len(points), 2)]
    return [pair[0].plus(pair[1]) if len(pair) > 1 else pair[0] for pair in pairs]


class PolicyTotals:
    """What one policy earned, by context and group of workflows, and how its thresholds moved."""

    def __init__(self) -> None:
        self.groups = [0.0] * GROUPS
        self.points: list[Point] = []
        self.hits: list[int] = []
        self.misses: list[int] = []
        self.saved: list[float] = []
        self.wasted: list[float] = []
        self.turns: list[int] = []
        self.since: list[int] = []
        self.served: list[float] = []
        self._extreme: list[float] = []
        self._direction: list[int] = []
        self._anchor: list[float] = []
        self.windows: list[int] = []
        self.in_band: list[int] = []
        self.modes = [0] * 6
        self.unsure = [0.0] * 4
        """See `UnsureSums`."""
        self._seen: list[int] = []
        self._right: list[int] = []

    def grow(self, contexts: int) -> None:
        """Extend all columns to so many contexts."""
        more = contexts - len(self.hits)
        if more <= 0:
            return
        for counts in (self.hits, self.misses, self.turns, self.since, self._direction,
                       self.windows, self.in_band, self._seen, self._right):  # fmt: skip
            counts.extend([0] * more)
        for sums in (self.saved, self.wasted):
            sums.extend([0.0] * more)
        for places in (self.served, self._extreme, self._anchor):
            places.extend([-1.0] * more)

    def add(self, block: Block, answers: Answers, contexts: int) -> None:
        """Add the answers to the predictions of a block."""
        self.grow(contexts)
        started = list(map(ge, block.confidence, answers.thresholds))
        for place in block.not_startable:
            started[place] = False
        self._earn(block, started)
        for place in block.unsure:
            if started[place]:
                self._add_unsure(block.outcomes[place], block.worth[place])
        self._add_points(block, started, answers.thresholds)
        if answers.served:
            self._add_turns(block, answers.served)
        if answers.suggest:
            self._count_modes(block, answers)

    def _add_unsure(self, outcome: Outcome, worth: float) -> None:
        """Add a started guess whose worth is estimated or not known."""
        missed = not outcome.correct
        if isinstance(outcome, AssumedOutcome) and outcome.unpriced:
            self.unsure[2 + missed] += 1.0
        else:
            self.unsure[missed] += abs(worth)

    def _count_modes(self, block: Block, answers: Answers) -> None:
        """Count (outcomes, hits) of ask, suggest, speculate, in the order of `learners.modes`."""
        modes = self.modes
        rows = zip(
            block.confidence, block.correct, answers.thresholds, answers.suggest, strict=True
        )
        for confidence, correct, threshold, suggest in compress(rows, block.startable):
            place = 4 if confidence >= threshold else 2 if confidence >= suggest else 0
            modes[place] += 1
            modes[place + 1] += correct

    def _add_points(
        self, block: Block, started: Sequence[bool], thresholds: Sequence[float]
    ) -> None:
        """Add a point for each time span."""
        begin = 0
        if block.not_startable:
            thresholds = [
                threshold if startable else 0.0
                for threshold, startable in zip(thresholds, block.startable, strict=True)
            ]
        for end, _, halves in block.stretches:
            own = started[begin:end]
            self.points.append(
                Point(
                    own.count(True),
                    sum(compress(block.correct[begin:end], own)),
                    sum(compress(block.worth[begin:end], own), 0.0),
                    sum(thresholds[begin:end]),
                )
            )
            if halves:
                self.points = halve(self.points)
            begin = end

    def _earn(self, block: Block, started: Sequence[bool]) -> None:
        hits, misses, saved, wasted = self.hits, self.misses, self.saved, self.wasted
        groups, seen = self.groups, self._seen
        for leaf, correct, worth, group in compress(block.rows, started):
            if correct:
                hits[leaf] += 1
                saved[leaf] += worth
            else:
                misses[leaf] += 1
                wasted[leaf] -= worth
            groups[group] += worth
            seen[leaf] = window = seen[leaf] + 1
            if window == WINDOW:
                self._close_window(leaf)

    def _close_window(self, leaf: int) -> None:
        """Compare the share of hits of a full window with the band."""
        right = self.hits[leaf] - self._right[leaf]
        self._seen[leaf] = 0
        self._right[leaf] = self.hits[leaf]
        self.windows[leaf] += 1
        if BAND[0] <= right / WINDOW <= BAND[1]:
            self.in_band[leaf] += 1

    def _add_turns(self, block: Block, served: Sequence[float]) -> None:
        """Track each context's threshold: turning points, and since when it is stable."""
        last, extremes, anchors = self.served, self._extreme, self._anchor
        directions, up, down = self._direction, TURN, -TURN
        if served.count(served[0]) == len(served) and all(
            last[leaf] == served[0] for leaf in block.places
        ):
            return
        for now, leaf, nth in zip(served, block.leaf, block.nth, strict=True):
            before = last[leaf]
            if now == before:
                continue
            if before < 0.0:
                last[leaf] = extremes[leaf] = anchors[leaf] = now
                continue
            last[leaf] = now
            away = now - anchors[leaf]
            if away > up or away < down:
                anchors[leaf] = now
                self.since[leaf] = nth
            direction, away = directions[leaf], now - extremes[leaf]
            if away * direction > 0.0:
                extremes[leaf] = now
            elif away >= up or away <= down:
                if direction:
                    self.turns[leaf] += 1
                directions[leaf] = 1 if away > 0.0 else -1
                extremes[leaf] = now
