"""How far each spool was seen, per key: what tells an event sent twice from a new one.

Positions of one spool and key only grow (the client sees to that, also across retries and
successors), so one at or below the last seen is a duplicate, however it was framed this time.
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
"""How long a position is kept after the spool's last event, by the partition's clock: well beyond
the life of a spool, which its owner sets aside after days."""
_ROW_BYTES: Final = 128
"""Bytes of a row without its key, at the most, and what a record batch adds to it."""

Place = tuple[str, str, str]
"""Tenant, workflow type, spool id."""


class LastPosition:
    """The last position of a spool and key, the partition's clock then, and its event's offset.

    `touched`: it has changed since the last `drain`, and is still the one that counts.
    """

    __slots__ = ("at", "offset", "position", "touched")

    def __init__(self, row: SpoolRow) -> None:
        self.position, self.at = row
        self.offset = -1
        self.touched = False


class Deduplicator:
    """The positions of one partition: a cache over the table's rows.

    What `drain` returned has to be in the table before anything else is asked.
    """

    def __init__(
        self,
        epoch: int,
        load: Callable[[bytes], bytes | None],
        most: int,
        arrived: Callable[[int], int] = int,
    ) -> None:
        """`most`: positions that stay in memory from one `drain` to the next.

        `arrived`: see `PartitionClock.arrived`.
        """
        self._epoch, self._load, self._most, self._arrived = epoch, load, most, arrived
        self.positions: dict[Place, LastPosition] = {}
        """Those in memory: what reads it may note a higher position in one that is `touched`."""
        self._touched: dict[Place, LastPosition | int] = {}
        self._expiry: list[tuple[int, Place]] = []
        self.touched_bytes = 0

    def restore(self, key: bytes, raw: bytes) -> None:
        """Take up one row of the table, so that it expires."""
        heapq.heappush(self._expiry, (self._arrived(decode_spool(raw).at), _place(key)))

    def recompute_ages(self) -> None:
        """Ask anew when each was last heard of: the partition's clock goes by clock records now."""
        self._expiry = [(self._arrived(at), place) for at, place in self._expiry]
        heapq.heapify(self._expiry)

    def duplicate(
        self, tenant: str, workflow_type: str, origin: tuple[str, int], clock: int, offset: int
    ) -> bool:
        """Return whether this event was seen before; note its position where it was not."""
        place = (tenant, workflow_type, origin[0])
        seen = self.positions.get(place)
        if seen is None:
            seen = self._find(place, clock)
        position = origin[1]
        if position <= seen.position:
            return True
        seen.position = position
        seen.at = clock
        seen.offset = offset
        if not seen.touched:  # a flag, because this is asked once an event
            seen.touched = True
            self._touch(place, seen)
        return False

    def _find(self, place: Place, clock: int) -> LastPosition:
        row = self._row(place)
        if row is None:
            row = SpoolRow(-1, clock)
            heapq.heappush(self._expiry, (clock, place))
        seen = self.positions[place] = LastPosition(row)
        return seen

    def _row(self, place: Place) -> SpoolRow | None:
        """Return the row in the table, unless it was deleted since."""
        if isinstance(self._touched.get(place), int):
            return None
        raw = self._load(spool_key(*place))
        return None if raw is None or is_deleted(raw) else decode_spool(raw)

    @property
    def next_expiry(self) -> float:
        """The clock, Unix ms, before which none expires."""
        return self._expiry[0][0] + SPOOL_LIFE_MS + 1 if self._expiry else inf

    def expire(self, clock: int, offset: int, room: ExpiryBudget) -> None:
        """Delete positions of spools not heard of for `SPOOL_LIFE_MS`, while there is room."""
        oldest = clock - SPOOL_LIFE_MS
        while room and self._expiry and self._expiry[0][0] < oldest:
            at, place = heapq.heappop(self._expiry)
            seen = self.positions.get(place) or self._row(place)
            if seen is None:
                continue
            if (last := self._arrived(seen.at)) != at:  # those not heard of for longest go first
                heapq.heappush(self._expiry, (last, place))
                continue
            if (gone := self.positions.pop(place, None)) is not None:
                gone.touched = False
            self._touch(place, offset)
            room.take(most_bytes(place))

    def _touch(self, place: Place, how: LastPosition | int) -> None:
        self._touched[place] = how
        self.touched_bytes += most_bytes(place)

    def drain(self) -> list[tuple[bytes, bytes]]:
        """Return the rows that changed since the last call."""
        rows = [(spool_key(*place), self._encoded(how)) for place, how in self._touched.items()]
        for seen in self._touched.values():
            if isinstance(seen, LastPosition):
                seen.touched = False
        self._touched.clear()
        self.touched_bytes = 0
        if len(self.positions) > self._most:
            self.positions.clear()
        return rows

    def _encoded(self, how: LastPosition | int) -> bytes:
        if isinstance(how, int):
            return deleted(self._epoch, how)
        return encode_spool(SpoolRow(how.position, how.at), self._epoch, how.offset)


def most_bytes(place: Place) -> int:
    """Return the bytes of a row, at the most."""
    # Keys are UTF-8, whose characters have four bytes at the most.
    return 4 * (len(place[0]) + len(place[1]) + len(place[2])) + _ROW_BYTES


def _place(key: bytes) -> Place:
    tenant, workflow_type, spool = key[1:].decode().split(SEPARATOR)
    return tenant, workflow_type, spool
