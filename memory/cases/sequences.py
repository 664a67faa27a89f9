"""Distinct sequences of tools, and how alike they are: 1 - edit distance / length of the longer.

Distances of one sequence to all others are computed at once, bit-parallel (Myers 1999, in the form
of Hyyro 2003), one machine word for each sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from memory.cases.columns import GrowingColumn

MOST_CALLS: Final = 64
"""Calls of a sequence that count: a machine word has as many bits. Later ones are cut off."""

_STEPS: Final = float(1 << 20)
"""Similarities are multiples of 2^-20, so that sums of them do not depend on their order."""

Similarities = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


class SequenceTable:
    """Numbers distinct sequences of tools, and compares them. Deterministic."""

    def __init__(self) -> None:
        self._tools: dict[str, int] = {}
        self._ids: dict[tuple[str, ...], int] = {}
        self._sequences: list[tuple[str, ...]] = []
        self._symbols = GrowingColumn(np.int32, MOST_CALLS)
        self._lengths = GrowingColumn(np.int32)

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, number: int) -> tuple[str, ...]:
        return self._sequences[number]

    def add(self, tools: Sequence[str]) -> int:
        """Return the number of a sequence, a new one if it is new."""
        cut = tuple(tools[:MOST_CALLS])
        found = self._ids.get(cut)
        if found is not None:
            return found
        row = np.full(MOST_CALLS, -1, np.int32)
        row[: len(cut)] = [self._tools.setdefault(tool, len(self._tools)) for tool in cut]
        self._symbols.append(row)
        self._lengths.append(len(cut))
        self._ids[cut] = number = len(self._sequences)
        self._sequences.append(cut)
        return number

    def similarities(self, number: int, others: Ids | slice) -> Similarities:
        """Return the edit similarity of a sequence to others, given by their numbers."""
        lengths = self._lengths.values[others]
        longest = int(lengths.max(initial=0))
        symbols = self._symbols.values[others, :longest]
        length = len(self._sequences[number])
        own = self._symbols.values[number, :length]
        distances = _distances(own, symbols, lengths, len(self._tools))
        longer = np.maximum(np.maximum(lengths, length), 1)
        found: Similarities = np.rint((1 - distances / longer) * _STEPS) / _STEPS
        return found


def pairwise_similarities(sequences: Sequence[Sequence[str]]) -> Similarities:
    """Return the edit similarity of each sequence to each, shape (n, n).

    Equal to those of a `SequenceTable`; all pairs at once, so it suits some hundred sequences.
    """
    cut = [tuple(each[:MOST_CALLS]) for each in sequences]
    tools: dict[str, int] = {}
    numbered = [[tools.setdefault(tool, len(tools)) for tool in each] for each in cut]
    lengths = np.array([len(each) for each in cut], np.int64)
    longest = int(lengths.max(initial=0))
    texts = np.full((len(cut), longest), len(tools), np.int64)  # the last one is the padding
    places = np.zeros((len(cut), len(tools) + 1), np.uint64)
    for row, symbols in enumerate(numbered):
        texts[row, : len(symbols)] = symbols
        for place, symbol in enumerate(symbols):
            places[row, symbol] |= np.uint64(1 << place)
    tops = np.maximum(lengths - 1, 0).astype(np.uint64)[:, None]
    found = _all_distances(places, texts, lengths, tops)
    found[lengths == 0] = lengths
    longer = np.maximum(np.maximum(lengths[:, None], lengths), 1)
    alike: Similarities = np.rint((1 - found / longer) * _STEPS) / _STEPS
    return alike


def _all_distances(
    places: npt.NDArray[np.uint64], texts: Ids, lengths: Ids, tops: npt.NDArray[np.uint64]
) -> Ids:
    """Return the distance of each pattern, given by the places of its symbols, to each text."""
    count, one = len(texts), np.uint64(1)
    rising = np.full((count, count), ~np.uint64(0))
    falling = np.zeros((count, count), np.uint64)
    found = np.repeat(lengths[:, None], count, axis=1)
    for column in range(texts.shape[1]):
        equal = places[:, texts[:, column]]
        vertical = equal | falling
        horizontal = (((equal & rising) + rising) ^ rising) | equal
        up = falling | ~(horizontal | rising)
        down = rising & horizontal
        step = ((up >> tops) & one).astype(np.int64) - ((down >> tops) & one).astype(np.int64)
        found += np.where(lengths > column, step, 0)
        up = (up << one) | one
        rising = (down << one) | ~(vertical | up)
        falling = up & vertical
    return found


def _distances(
    own: npt.NDArray[np.int32],
    texts: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    tools: int,
) -> npt.NDArray[np.int32]:
    """Return the edit distance of `own` to each row of `texts`, which is padded by -1."""
    if not len(own):
        return lengths
    places = np.zeros(tools + 1, np.uint64)  # the last one is that of the padding
    for place, symbol in enumerate(own):
        places[symbol] |= np.uint64(1 << place)
    one, top = np.uint64(1), np.uint64(len(own) - 1)
    rising = np.full(len(texts), ~np.uint64(0))
    falling = np.zeros(len(texts), np.uint64)
    found = np.full(len(texts), len(own), np.int32)
    for column in range(texts.shape[1]):
        equal = places[texts[:, column]]
        vertical = equal | falling
        horizontal = (((equal & rising) + rising) ^ rising) | equal
        up = falling | ~(horizontal | rising)
        down = rising & horizontal
        step = ((up >> top) & one).astype(np.int32) - ((down >> top) & one).astype(np.int32)
        found += np.where(lengths > column, step, 0)
        up = (up << one) | one
        rising = (down << one) | ~(vertical | up)
        falling = up & vertical
    return found
