"""Counts of what followed each context, compactly.

A context that was always followed by the same symbol, as most are, is one integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from headstart.prediction.bounded_tables import RecentTable

ONE_COUNT: Final = 32
"""One observation, in packed counts."""
SYMBOL_BITS: Final = 10
SYMBOL_MASK: Final = (1 << SYMBOL_BITS) - 1
MOST_FOLLOWERS, MOST_OF_ROOT = 20, 250
"""Symbols that one context keeps, and the first of all contexts: then the rarest is forgotten."""
_LARGEST_TOTAL: Final = 60_000
_LARGEST_SINGLE: Final = _LARGEST_TOTAL // ONE_COUNT
_STRUCTS: Final = [Struct(f"<{1 + 2 * n}H") for n in range(MOST_OF_ROOT + 1)]

Counts = int | bytes
"""count << 10 | symbol while it was always the same symbol; else packed 16-bit numbers: the total,
then symbol and count of each, counts in units of 1 / 32."""


def unpacked(counts: bytes) -> tuple[int, ...]:
    """Return the total, then symbol and count of each."""
    return _STRUCTS[len(counts) >> 2].unpack(counts)


def total_of(counts: Counts) -> int:
    """Return how often a context was followed, in units of 1 / 32."""
    if isinstance(counts, int):
        return (counts >> SYMBOL_BITS) * ONE_COUNT
    return unpacked(counts)[0]


class ContextCounts:
    """A bounded table of contexts."""

    def __init__(self, limit: int) -> None:
        self.table: RecentTable[Counts] = RecentTable(limit)

    def find(self, contexts: Sequence[int]) -> list[Counts | None]:
        """Return the counts of contexts, None for one that was never seen."""
        young, old = self.table.young.get, self.table.old.get
        return [young(context) or old(context) for context in contexts]

    def update(self, contexts: Sequence[int], symbol: int) -> None:
        """Count a symbol in each context; the counts of other symbols there fade by 1 / 32."""
        set_counts = self.table.set
        most = MOST_OF_ROOT  # the first context is the root, which every update counts
        for context, counts in zip(contexts, self.find(contexts), strict=True):
            if counts is None:
                set_counts(context, 1 << SYMBOL_BITS | symbol)
            elif type(counts) is int and counts & SYMBOL_MASK == symbol:
                full = counts >> SYMBOL_BITS >= _LARGEST_SINGLE
                set_counts(context, counts if full else counts + (1 << SYMBOL_BITS))
            else:
                set_counts(context, _counted(counts, symbol, most))
            most = MOST_FOLLOWERS


def _counted(counts: Counts, symbol: int, most: int) -> bytes:
    if isinstance(counts, int):
        total = (counts >> SYMBOL_BITS) * ONE_COUNT
        kept = [total, counts & SYMBOL_MASK, total]
    else:
        kept = list(_STRUCTS[len(counts) >> 2].unpack(counts))
    total, found = 0, False
    for i in range(2, len(kept), 2):
        n = kept[i]
        if kept[i - 1] == symbol:
            n += ONE_COUNT
            kept[i] = n
            found = True
        elif n > ONE_COUNT:
            n = n * 31 >> 5
            kept[i] = n
        total += n
    if not found:
        if len(kept) >= 2 * most:
            total -= _forget_rarest(kept)
        kept += (symbol, ONE_COUNT)
        total += ONE_COUNT
    if total > _LARGEST_TOTAL:
        kept[2::2] = [(n + 1) >> 1 for n in kept[2::2]]
        total = sum(kept[2::2])
    kept[0] = total
    return _STRUCTS[len(kept) >> 1].pack(*kept)


def _forget_rarest(kept: list[int]) -> int:
    """Remove the pair with the least count from the list, and return that count."""
    i = min(range(2, len(kept), 2), key=kept.__getitem__)
    count = kept[i]
    del kept[i - 1 : i + 1]
    return count
