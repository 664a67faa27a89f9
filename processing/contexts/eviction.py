"""Which contexts of a partition stay: the idle ones go by its clock, and the oldest of a tenant
that has too many.

Oldest is by when the newest outcome arrived; of two alike the finer, so that no context outlives
the one above it. What goes follows from the rows and the clock alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from typing import Final

HOUR_MS: Final = 3_600_000
"""Idle contexts are looked for when the partition's clock begins another hour."""

Entry = tuple[int, int, bytes]
"""When the newest outcome had arrived when last looked at, minus the key's length, row key."""
NewestOf = Callable[[bytes], int]
"""Row key to when (Unix ms) that context's newest outcome arrived."""


class EvictionIndex:
    """Every context of one partition, by tenant.

    Its heaps are looked at lazily: an entry never says a later time than is true, so one that
    proves right is the least. Nothing is done here where a context learns.
    """

    def __init__(self, idle_ms: int, most: int) -> None:
        self._idle_ms, self._most = idle_ms, most
        self._heaps: dict[str, list[Entry]] = {}

    def add(self, tenant: str, key: bytes, newest: int) -> None:
        """Take in a context that is new, or a row of the table."""
        heapq.heappush(self._heaps.setdefault(tenant, []), (newest, -len(key), key))

    def recompute_ages(self, newest: Callable[[int], int]) -> None:
        """Ask anew how late entries are: the partition's clock goes by clock records now."""
        for heap in self._heaps.values():
            heap[:] = [(newest(at), length, key) for at, length, key in heap]
            heapq.heapify(heap)

    def matching(self, wanted: Callable[[str, bytes], bool]) -> list[bytes]:
        """Return the keys of contexts that are wanted by tenant and key."""
        return [
            entry[2] for tenant, heap in self._heaps.items() for entry in heap
            if wanted(tenant, entry[2])
        ]  # fmt: skip

    def remove(self, keys: Collection[bytes]) -> None:
        """Let contexts go."""
        gone = frozenset(keys)
        for tenant, heap in list(self._heaps.items()):
            left = [entry for entry in heap if entry[2] not in gone]
            if len(left) < len(heap):
                heapq.heapify(left)
                self._heaps[tenant] = left
            if not left:
                del self._heaps[tenant]

    def excess(self, tenant: str, newest_of: NewestOf) -> Iterator[bytes]:
        """Let the oldest contexts of a tenant go until no more than the most are left."""
        heap = self._heaps.get(tenant, [])
        while len(heap) > self._most:
            yield self._least(heap, newest_of)

    def idle(self, clock: int, newest_of: NewestOf) -> Iterator[bytes]:
        """Let those go that have been idle for too long as an hour begins, the one of `clock`.

        In one order, however often this was restored: whoever asks may stop in between.
        """
        oldest = clock // HOUR_MS * HOUR_MS - self._idle_ms
        for tenant, heap in sorted(self._heaps.items()):
            while heap and heap[0][0] < oldest:
                if (newest := newest_of(heap[0][2])) != heap[0][0]:
                    self._refresh(heap, newest)
                else:
                    yield heapq.heappop(heap)[2]
            if not heap:
                del self._heaps[tenant]

    def _least(self, heap: list[Entry], newest_of: NewestOf) -> bytes:
        while (newest := newest_of(heap[0][2])) != heap[0][0]:
            self._refresh(heap, newest)
        return heapq.heappop(heap)[2]

    def _refresh(self, heap: list[Entry], newest: int) -> None:
        _earlier, length, key = heap[0]
        heapq.heapreplace(heap, (newest, length, key))


def next_hour(clock: int) -> int:
    """Return the clock before which no idle context goes, being `clock` now (Unix ms)."""
    return (clock // HOUR_MS + 1) * HOUR_MS
