"""BM25 over an inverted index that grows by one text at a time (Robertson & Zaragoza 2009)."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

from memory.cases.columns import GrowingColumn

SATURATION: Final = 1.2
LENGTH_WEIGHT: Final = 0.75
MOST_TERMS: Final = 32
"""Terms of a query that count: the rarest ones, so that a long text costs no more."""

Scores = npt.NDArray[np.float64]


class LexicalIndex:
    """Texts as lists of terms, numbered in the order in which they were added."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._counts: dict[str, array[int]] = {}
        self._lengths = GrowingColumn(np.float64)
        self._total = 0

    def add(self, terms: Iterable[str]) -> None:
        """Add a text."""
        counted = Counter(terms)
        number = len(self._lengths)
        for term, count in counted.items():
            self._rows.setdefault(term, array("q")).append(number)
            self._counts.setdefault(term, array("q")).append(count)
        self._total += counted.total()
        self._lengths.append(counted.total())

    def scores(self, terms: Iterable[str]) -> Scores:
        """Return the score of each text, as a share of the most that these terms can score."""
        size = len(self._lengths)
        found = np.zeros(size)
        if not size or not self._total:
            return found
        known = {term: len(self._rows[term]) for term in set(terms) if term in self._rows}
        rarest = sorted(known, key=lambda term: (known[term], term))[:MOST_TERMS]
        longer = self._lengths.values * (LENGTH_WEIGHT * size / self._total)
        longer = SATURATION * (1 - LENGTH_WEIGHT + longer)
        most = 0.0
        for term in rarest:
            weight = log(1 + (size - known[term] + 0.5) / (known[term] + 0.5))
            rows = np.array(self._rows[term])
            counts = np.array(self._counts[term], np.float64)
            found[rows] += weight * (SATURATION + 1) * counts / (counts + longer[rows])
            most += weight * (SATURATION + 1)
        return found / most if most else found


class PartIndex:
    """Sets of parts, and the share of parts that a set has in common with each (Jaccard 1901)."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._sizes = GrowingColumn(np.int64)

    def add(self, parts: Iterable[str]) -> None:
        """Add a set."""
        own = set(parts)
        for part in own:
            self._rows.setdefault(part, array("q")).append(len(self._sizes))
        self._sizes.append(len(own))

    def scores(self, parts: Iterable[str]) -> Scores:
        """Return |intersection| / |union| with each set."""
        own = set(parts)
        common = np.zeros(len(self._sizes), np.int64)
        for part in own:
            if part in self._rows:
                common[np.array(self._rows[part])] += 1
        return common / np.maximum(self._sizes.values + len(own) - common, 1)
