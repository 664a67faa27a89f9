"""Positions of a spool that were counted as lost, so that reading again counts none twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Span = tuple[int, int]
"""Positions from the first number up to, but excluding, the second."""


class Losses:
    """The losses of one spool, in the memory of its shipper.

    Positions missing in `earlier` are not counted: an earlier shipper counted those it missed, and
    those that an emitter deleted because they were acknowledged are no loss. Nor are purged ones.
    """

    def __init__(self, earlier: Span, purged: Sequence[Span] = ()) -> None:
        """`earlier`: positions that an earlier shipper read, and that are read again."""
        self._earlier, self._purged = earlier, purged
        self._counted: list[Span] = []

    def read_again(self, before: int) -> None:
        """Note that the positions below `before` will be read again."""
        self._earlier = (max(self._earlier[0], before), self._earlier[1])

    def missing(self, first: int, end: int, consumed: int) -> int:
        """Count positions that are in no file; return how many were not counted before.

        Positions below `consumed` are never read again.
        """
        return sum(self._missing(a, b, consumed) for a, b in self._not_purged(first, end))

    def _not_purged(self, first: int, end: int) -> Iterator[Span]:
        for low, high in self._purged:
            if first < low < end:
                yield first, low
            if low < end:
                first = max(first, high)
        if first < end:
            yield first, end

    def _missing(self, first: int, end: int, consumed: int) -> int:
        low, high = self._earlier
        fresh = self._add(first, end, consumed)
        return sum(b - a - max(0, min(b, high) - max(a, low)) for a, b in fresh)

    def stale(self, first: int, end: int, consumed: int) -> int:
        """Count positions that are in files but will not be sent; return how many are new."""
        return sum(b - a for a, b in self._add(first, end, consumed))

    def _add(self, first: int, end: int, consumed: int) -> list[Span]:
        """Add a span to those counted; return its parts that were not counted yet."""
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
        self._counted = [span for span in merged if span[1] > consumed]
        return fresh
