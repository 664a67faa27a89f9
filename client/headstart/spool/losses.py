"""Which positions of a spool were counted as lost, so that a second reading counts none twice."""

from __future__ import annotations

Span = tuple[int, int]
"""Positions from the first number up to, and without, the second."""


class Losses:
    """The losses of one spool, in the memory of its shipper.

    An earlier shipper has counted what it found missing; what an emitter deleted because it was
    acknowledged it has not, and had not to. So what is missing in `earlier` is not counted.
    """

    def __init__(self, earlier: Span) -> None:
        """`earlier`: positions that an earlier shipper has read, and that are read again."""
        self._earlier = earlier
        self._counted: list[Span] = []

    def read_again(self, before: int) -> None:
        """Note that the positions below `before` were read here, and are going to be once more."""
        self._earlier = (max(self._earlier[0], before), self._earlier[1])

    def missing(self, first: int, end: int, taken: int) -> int:
        """Return how many of these positions, which are not in the files, were not counted yet.

        What is below `taken` is never read again.
        """
        low, high = self._earlier
        fresh = self._add(first, end, taken)
        return sum(b - a - max(0, min(b, high) - max(a, low)) for a, b in fresh)

    def stale(self, first: int, end: int, taken: int) -> int:
        """The same of positions that are in the files, and will not be sent."""
        return sum(b - a for a, b in self._add(first, end, taken))

    def _add(self, first: int, end: int, taken: int) -> list[Span]:
        """Return which parts of a span are not among those counted, and add them."""
        fresh: list[Span] = []
        at = first
        for low, high in self._counted:
            if low >= end:
                break
            if low > at:
                fresh.append((at, low))
            at = max(at, high)
        if at < end:
            fresh.append((at, end))
        merged: list[Span] = []
        for low, high in sorted(self._counted + fresh):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self._counted = [span for span in merged if span[1] > taken]
        return fresh
