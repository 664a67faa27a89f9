"""Sums per policy over one part of a history. Where the parts begin is decided in `engine`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headstart.experiments import GROUPS
from replay.engine.accumulators import PolicyTotals, TimeBuckets
from replay.engine.ground_truth import Drifts, Hindsight, Reliability
from replay.predictions.blocks import Block


class Split(NamedTuple):
    """Where a second part begins: an event time (Unix ms), or a number of predictions."""

    at: int | None = None
    number: int | None = None


@dataclass
class SplitSums:
    """The sums of one part (there are two where settings are searched).

    `counts`: predictions that were learned from, by context; `not_startable`: how many of them no
    policy could have started, where there are any; `reasons`: why, and how many; `members`: of
    each group of workflows. `first`, `last`: event times, Unix ms.
    """

    totals: dict[str, PolicyTotals]
    buckets: TimeBuckets = field(default_factory=TimeBuckets)
    hindsight: Hindsight = field(default_factory=Hindsight)
    reliability: Reliability = field(default_factory=Reliability)
    drifts: Drifts = field(default_factory=Drifts)
    counts: list[int] = field(default_factory=list)
    not_startable: dict[int, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    members: list[int] = field(default_factory=lambda: [0] * GROUPS)
    first: int = 0
    last: int = 0

    def count(self, block: Block, clock: int) -> None:
        """Count a block's predictions and number them in their contexts (`Block.nth`).

        `clock`: the latest event time of the history, this block included.
        """
        counts, nth, members = self.counts, block.nth, self.members
        if len(counts) < block.contexts:
            counts.extend([0] * (block.contexts - len(counts)))
        for group in block.group:
            members[group] += 1
        for leaf in block.leaf:
            counts[leaf] = count = counts[leaf] + 1
            nth.append(count)
        for place in block.not_startable:
            leaf, reason = block.leaf[place], block.outcomes[place].not_startable
            self.not_startable[leaf] = self.not_startable.get(leaf, 0) + 1
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            members[block.group[place]] -= 1
        if block:
            times = [each.timestamp for each in block.outcomes if each.timestamp]
            if times:  # those of a file may be in any order
                self.first = min(self.first or times[0], *times)
            self.last = max(self.last, clock)

    def add(self, block: Block) -> None:
        """Add the sums of a block's predictions that do not depend on the policy."""
        self.hindsight.add(block)
        self.reliability.add(block)
        self.drifts.add(block)
