"""The typical course of runs that begin with a tool: the medoid of their sequences.

The strongest rule without retrieval on recorded runs, hence the reference of every evaluation.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from memory.cases.sequences import Ids
from memory.cases.similarities import SimilarityTable

Numbers = npt.NDArray[np.float64]
ANY: Final = -1
"""The group of all cases."""


class Typicality:
    """Counts sequences by group, among those that a table keeps."""

    def __init__(self, alike: SimilarityTable) -> None:
        self._alike = alike
        self._counts: dict[int, Numbers] = {}
        self._scores: dict[int, Numbers] = {}

    def add(self, group: int, number: int) -> None:
        """Count a sequence in its group, and in that of all."""
        before = self._alike.slot(number)
        slot, replaced = self._alike.add(number)
        if replaced:
            self._forget(slot)
        for each in (group, ANY):
            counts = self._sized(self._counts, each)
            scores = self._sized(self._scores, each)
            if before is None:
                self._scores[each][slot] = self._alike.row(slot) @ counts
            counts[slot] += 1
            scores += self._alike.row(slot)
        if before is None:
            for each in self._counts.keys() - {group, ANY}:
                counts = self._sized(self._counts, each)
                self._sized(self._scores, each)[slot] = self._alike.row(slot) @ counts

    def scores(self, group: int, without: Ids) -> tuple[Ids, Numbers] | None:
        """Return the sequences of a group and their mean similarity to all of them.

        `without`: sequences, each as often as it is not to count. None if nothing is left.
        """
        if group not in self._counts:
            return None
        counts = self._sized(self._counts, group)
        scores = self._sized(self._scores, group)
        slots = self._alike.slots_of(without)
        slots = slots[slots >= 0]
        if len(slots):
            left = np.bincount(slots, minlength=len(counts)).astype(np.float64)
            some = np.flatnonzero(left)
            scores = scores - self._alike.columns(some) @ left[some]
            counts = counts - left
        there = np.flatnonzero(counts > 0)
        if not len(there):
            return None
        return self._alike.numbers[there], scores[there] / counts[there].sum()

    def _forget(self, slot: int) -> None:
        """Recount what a slot's former sequence counted; its similarities are another one's now."""
        for group in self._counts:
            counts = self._sized(self._counts, group)
            if counts[slot]:
                counts[slot] = 0
                some = np.flatnonzero(counts)
                self._scores[group] = self._alike.columns(some) @ counts[some]

    def _sized(self, values: dict[int, Numbers], group: int) -> Numbers:
        """Return the numbers of a group, one a slot."""
        found = values.get(group, np.zeros(0))
        if len(found) < self._alike.size:
            found = np.concatenate([found, np.zeros(self._alike.size - len(found))])
            values[group] = found
        return found


def medoid(numbers: Ids, scores: Numbers) -> int:
    """Return the sequence of the highest score; of equals the one that was known first."""
    return int(numbers[scores >= scores.max()].min())
