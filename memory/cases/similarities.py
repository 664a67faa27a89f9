"""How alike sequences are, kept for the distinct sequences that were seen last."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt

from memory.cases.sequences import Ids, SequenceTable, Similarities

MOST_SEQUENCES: Final = 2_048
"""Distinct sequences that are kept; the one that was not seen for longest makes room."""


class SimilarityTable:
    """A square table of similarities, one slot a sequence."""

    def __init__(self, table: SequenceTable, most: int = MOST_SEQUENCES) -> None:
        self._table, self._most = table, most
        self._slots: OrderedDict[int, int] = OrderedDict()
        self._slot_of = np.zeros(0, np.int64)
        self._alike: Similarities = np.zeros((0, 0))
        self.numbers: Ids = np.zeros(0, np.int64)
        """The sequence of each slot, -1 for none."""

    @property
    def size(self) -> int:
        """Slots that there are, used or not."""
        return len(self.numbers)

    def slot(self, number: int) -> int | None:
        """Return the slot of a sequence, None if it is not kept."""
        return self._slots.get(number)

    def row(self, slot: int) -> Similarities:
        """Return the similarity of a slot's sequence to those of all slots."""
        row: Similarities = self._alike[slot]
        return row

    def columns(self, slots: Ids) -> Similarities:
        """Return the similarities of all slots to some, shape (size, slots)."""
        return self._alike[:, slots]

    def add(self, number: int) -> tuple[int, bool]:
        """Return the slot of a sequence, and whether it replaced another one's."""
        if number in self._slots:
            self._slots.move_to_end(number)
            return self._slots[number], False
        replaced = len(self._slots) == self._most
        if replaced:
            old, slot = self._slots.popitem(last=False)
            self._slot_of[old] = -1
        else:
            slot = len(self._slots)
            if slot == self.size:
                self._grow(min(self._most, max(64, 2 * slot)))
        self._slots[number] = slot
        self.numbers[slot] = number
        if number >= len(self._slot_of):
            more = max(64, 2 * number) - len(self._slot_of)
            self._slot_of = np.concatenate([self._slot_of, np.full(more, -1, np.int64)])
        self._slot_of[number] = slot
        used = np.flatnonzero(self.numbers >= 0)
        self._alike[slot] = 0
        self._alike[slot, used] = self._table.similarities(number, self.numbers[used])
        self._alike[:, slot] = self._alike[slot]
        return slot, replaced

    def slots_of(self, numbers: Ids) -> Ids:
        """Return the slots of sequences, -1 for those that are not kept."""
        found = np.full(len(numbers), -1, np.int64)
        known = numbers < len(self._slot_of)
        found[known] = self._slot_of[numbers[known]]
        return found

    def between(self, one: Ids, other: Ids) -> Similarities:
        """Return the similarities of sequences to others, shape (one, other)."""
        rows, columns = self.slots_of(one), self.slots_of(other)
        found: Similarities = self._alike[np.ix_(rows, columns)]
        for place in np.flatnonzero(rows < 0):
            found[place] = self._table.similarities(int(one[place]), other)
        missing = np.flatnonzero(columns < 0)
        if len(missing):
            for place in np.flatnonzero(rows >= 0):
                found[place, missing] = self._table.similarities(int(one[place]), other[missing])
        return found

    def _grow(self, size: int) -> None:
        old = self.size
        self.numbers = np.concatenate([self.numbers, np.full(size - old, -1, np.int64)])
        alike: npt.NDArray[np.float64] = np.zeros((size, size))
        alike[:old, :old] = self._alike
        self._alike = alike
