"""Recognises events that were sent twice, by the last position seen of each spool and key.

Positions of one spool and key only grow (the client guarantees that, also across retries and
processes), so one at or below the last is a duplicate, however it is framed this time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from typing import Final

from headstart.keys import SEPARATOR
from processing.state.expiry_budget import ExpiryBudget
from processing.state.rows import (
    SpoolRow,
    decode_spool,
    deleted,
    encode_spool,
    is_deleted,
    spool_key,
)

SPOOL_LIFE_MS: Final = 14 * 86_400_000
"""How long a position is kept after the spool's last event, by the partition's clock: much longer
than a spool lives, which is quarantined after days."""
_ROW_BYTES: Final = 128
"""Upper bound of the bytes of a row without its key, and what a record batch adds to it."""

SpoolKey = tuple[str, str, str]
"""Tenant, workflow type, spool id."""


class LastPosition:
    """The last position of a spool and key, the partition's clock then, and its event's offset.

    `touched`: it changed since the last `drain`, and has not expired since.
    """

    __slots__ = ("at", "offset", "position", "touched")

    def __init__(self, row: SpoolRow) -> None:
        self.position, self.at = row
        self.offset = -1
        self.touched = False


class Deduplicator:
    """The positions of one partition: a cache over the rows of the table.

    The rows that `drain` returns have to be in the table before the next call.
    """

    def __init__(
        self,
        epoch: int,
        load: Callable[[bytes], bytes | None],
        most: int,
        arrived: Callable[[int], int] = int,
    ) -> None:
        """`most`: positions that stay cached from one `drain` to the next.

        `arrived`: see `PartitionClock.arrived`.
        """
        self._epoch, self._load, self._most, self._arrived = epoch, load, most, arrived
        self.positions: dict[SpoolKey, LastPosition] = {}
        """Cached positions. Readers may raise the position of one that is `touched`."""
        self._touched: dict[SpoolKey, LastPosition | int] = {}
        self._expiry: list[tuple[int, SpoolKey]] = []
        self.touched_bytes = 0

    def restore(self, key: bytes, raw: bytes) -> None:
        """Note that the table has a row, so that it expires."""
        heapq.heappush(self._expiry, (self._arrived(decode_spool(raw).at), _spool_key_of(key)))

    def recompute_ages(self) -> None:
        """Judge the age of positions by clock records from now on."""
        self._expiry = [(self._arrived(at), key) for at, key in self._expiry]
        heapq.heapify(self._expiry)

    def duplicate(
        self, tenant: str, workflow_type: str, origin: tuple[str, int], clock: int, offset: int
    ) -> bool:
        """Return whether an event is a duplicate; note its position where it is not."""
        key = (tenant, workflow_type, origin[0])
        seen = self.positions.get(key)
        if seen is None:
            seen = self._find(key, clock)
        position = origin[1]
        if position <= seen.position:
            return True
        seen.position = position
        seen.at = clock
        seen.offset = offset
        if not seen.touched:  # a flag is cheaper, once an event, than a set
            seen.touched = True
            self._touch(key, seen)
        return False

    def _find(self, key: SpoolKey, clock: int) -> LastPosition:
        row = self._row(key)
        if row is None:
            row = SpoolRow(-1, clock)
            heapq.heappush(self._expiry, (clock, key))
        seen = self.positions[key] = LastPosition(row)
        return seen

    def _row(self, key: SpoolKey) -> SpoolRow | None:
        """Return the row in the table, unless it was deleted."""
        if isinstance(self._touched.get(key), int):
            return None
        raw = self._load(spool_key(*key))
        return None if raw is None or is_deleted(raw) else decode_spool(raw)

    @property
    def next_expiry(self) -> float:
        """Time (Unix ms) before which none expires."""
        return self._expiry[0][0] + SPOOL_LIFE_MS + 1 if self._expiry else inf

    def expire(self, clock: int, offset: int, budget: ExpiryBudget) -> None:
        """Delete positions of spools without events for `SPOOL_LIFE_MS`, within the budget."""
        oldest = clock - SPOOL_LIFE_MS
        while budget and self._expiry and self._expiry[0][0] < oldest:
            at, key = heapq.heappop(self._expiry)
            seen = self.positions.get(key) or self._row(key)
            if seen is None:
                continue
            if (last := self._arrived(seen.at)) != at:  # it had events since
                heapq.heappush(self._expiry, (last, key))
                continue
            if (gone := self.positions.pop(key, None)) is not None:
                gone.touched = False
            self._touch(key, offset)
            budget.take(most_bytes(key))

    def _touch(self, key: SpoolKey, new: LastPosition | int) -> None:
        self._touched[key] = new
        self.touched_bytes += most_bytes(key)

    def drain(self) -> list[tuple[bytes, bytes]]:
        """Return the rows that changed since the last call."""
        rows = [(spool_key(*key), self._encoded(each)) for key, each in self._touched.items()]
        for seen in self._touched.values():
            if isinstance(seen, LastPosition):
                seen.touched = False
        self._touched.clear()
        self.touched_bytes = 0
        if len(self.positions) > self._most:
            self.positions.clear()
        return rows

    def _encoded(self, new: LastPosition | int) -> bytes:
        if isinstance(new, int):
            return deleted(self._epoch, new)
        return encode_spool(SpoolRow(new.position, new.at), self._epoch, new.offset)


def most_bytes(key: SpoolKey) -> int:
    """Return an upper bound of the bytes of a row."""
    # Keys are UTF-8, at most four bytes a character.
    return 4 * sum(map(len, key)) + _ROW_BYTES


def _spool_key_of(key: bytes) -> SpoolKey:
    tenant, workflow_type, spool = key[1:].decode().split(SEPARATOR)
    return tenant, workflow_type, spool
