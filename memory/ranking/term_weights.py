"""Which words of a request tell what happens, learned from finished runs.

Two requests that share "cancel" may take the same course more often than any two, those that share
"please" may not. Of each term it counts how alike the courses were of runs that share it; its
weight is the logarithm of that, relative to any two runs (0 if it is below). The sum of the
weights of shared terms is then, as in naive Bayes, evidence that two runs take the same course.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

PARTNERS: Final = 4
"""Earlier runs with a term that a new one is compared with: the newest."""
MOST_TERMS: Final = 32
"""Terms of a text that count, the rarest ones."""
_PRIOR: Final = 4.0

Numbers = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class TermWeights:
    """Texts as sets of terms, numbered in the order in which they were added."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._alike: dict[str, float] = {}
        self._compared: dict[str, int] = {}
        self._all_alike = 0.0
        self._all_compared = 0
        self._size = 0

    def partners(self, terms: Iterable[str]) -> tuple[list[str], Rows]:
        """Return the known terms of a new text and the texts to compare it with, PARTNERS each.

        Terms that fewer texts have take part with those.
        """
        names, rows = [], list[int]()
        for term in self._rarest(terms):
            own = self._rows[term][-PARTNERS:]
            names.extend([term] * len(own))
            rows.extend(own)
        return names, np.array(rows, np.int64)

    def learn(self, names: Iterable[str], alike: Numbers) -> None:
        """Learn how alike the courses of `partners` were to that of the new text, 0 to 1."""
        for term, value in zip(names, alike.tolist(), strict=True):
            self._alike[term] = self._alike.get(term, 0.0) + value
            self._compared[term] = self._compared.get(term, 0) + 1

    def learn_any(self, alike: float) -> None:
        """Learn how alike the courses of two texts were that need not share anything."""
        self._all_alike += alike
        self._all_compared += 1

    def add(self, terms: Iterable[str]) -> None:
        """Add a text."""
        for term in sorted(set(terms)):
            self._rows.setdefault(term, array("q")).append(self._size)
        self._size += 1

    def scores(self, terms: Iterable[str]) -> Numbers:
        """Return the sum of the weights of the terms shared with each text, as log odds ratio."""
        found = np.zeros(self._size)
        for term in self._rarest(terms):
            weight = self._weight(term)
            if weight > 0:
                found[np.array(self._rows[term])] += weight
        return found

    def _weight(self, term: str) -> float:
        usual = (self._all_alike + 0.1) / (self._all_compared + 1.0)
        own = self._alike.get(term, 0.0) + _PRIOR * usual
        return log(own / ((self._compared.get(term, 0) + _PRIOR) * usual))

    def _rarest(self, terms: Iterable[str]) -> list[str]:
        known = {term: len(self._rows[term]) for term in set(terms) if term in self._rows}
        return sorted(known, key=lambda term: (known[term], term))[:MOST_TERMS]
