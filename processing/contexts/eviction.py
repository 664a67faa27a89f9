"""Chooses contexts of a partition to evict: idle ones, and a tenant's oldest beyond its limit.

The oldest is the one whose newest outcome arrived first; of two alike the finer one, so that no
context outlives its parent. The choice follows from the rows and the clock alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from typing import Final

HOUR_MS: Final = 3_600_000
"""Idle contexts are evicted when the partition's clock begins another hour."""

Entry = tuple[int, int, bytes]
"""When the newest outcome arrived, as last checked; minus the key's length; row key."""
NewestOf = Callable[[bytes], int]
"""Row key to the time (Unix ms) at which that context's newest outcome arrived."""


class EvictionIndex:
    """Every context of one partition, in a heap for each tenant.

    Heaps are corrected lazily: an entry is never later than the truth, so the first entry that is
    right is the oldest. Learning does not touch the heaps.
    """

    def __init__(self, idle_ms: int, most: int) -> None:
        self._idle_ms, self._most = idle_ms, most
        self._heaps: dict[str, list[Entry]] = {}

    def add(self, tenant: str, key: bytes, newest: int) -> None:
        """Add a context that is new, or has a row in the table."""
        heapq.heappush(self._heaps.setdefault(tenant, []), (newest, -len(key), key))

    def recompute_ages(self, newest: Callable[[int], int]) -> None:
        """Judge the age of entries by clock records from now on."""
        for heap in self._heaps.values():
            heap[:] = [(newest(at), length, key) for at, length, key in heap]
            heapq.heapify(heap)

    def matching(self, matches: Callable[[str, bytes], bool]) -> list[bytes]:
        """Return the keys for which `matches(tenant, key)`."""
        return [
            entry[2] for tenant, heap in self._heaps.items() for entry in heap
            if matches(tenant, entry[2])
        ]  # fmt: skip

    def remove(self, keys: Collection[bytes]) -> None:
        """Remove contexts."""
        removed = frozenset(keys)
        for tenant, heap in list(self._heaps.items()):
            left = [entry for entry in heap if entry[2] not in removed]
            if len(left) < len(heap):
                heapq.heapify(left)
                self._heaps[tenant] = left
            if not left:
                del self._heaps[tenant]

    def excess(self, tenant: str, newest_of: NewestOf) -> Iterator[bytes]:
        """Remove and yield the oldest contexts of a tenant beyond its limit."""
        heap = self._heaps.get(tenant, [])
        while len(heap) > self._most:
            yield self._least(heap, newest_of)

    def idle(self, clock: int, newest_of: NewestOf) -> Iterator[bytes]:
        """Remove and yield contexts that were idle for too long when the hour of `clock` began.

        The order does not depend on restarts, because the caller may stop in between.
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
    """Return the time (Unix ms), after `clock`, before which no idle context is evicted."""
    return (clock // HOUR_MS + 1) * HOUR_MS
