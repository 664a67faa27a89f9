"""Admits fetches in order: drops old ones, and fetches gaps and holes again.

Knows neither Faust nor Kafka; `FetchSource` is the part of a consumer that it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

import structlog

from processing.records.batch import RecordBatch
from processing.records.offset_tracker import FetchDecision, OffsetTracker, missing

log = structlog.get_logger()

HOLE_WAIT_S: Final = 0.01

Place = TypeVar("Place")
"""Identifies a partition."""


class FetchSource(Protocol[Place]):
    """Where batches come from: a consumer."""

    async def earliest_offsets(self, place: Place, /) -> Mapping[Place, int]:
        """Return the first offset that the log still has."""
        ...

    async def seek_wait(self, positions: Mapping[Place, int], /) -> None:
        """Fetch each from this offset on, and drop what was fetched beyond."""
        ...


async def _ignore(_place: object, _lost: range) -> None:
    """Do nothing."""


class FetchSequencer(Generic[Place]):
    """Decides for the partitions of one assignment which batch is the next one."""

    def __init__(
        self,
        source: FetchSource[Place],
        group: str,
        begin: Mapping[Place, int],
        *,
        holes_are_real: bool,
        on_lost: Callable[[Place, range], Awaitable[None]] = _ignore,
    ) -> None:
        """`begin`: the first offset of each partition. `holes_are_real`: see `OffsetTracker`.

        `on_lost`: awaited with a partition and its offsets that the log no longer has, before
        anything after them is taken.
        """
        self.positions: OffsetTracker[Place] = OffsetTracker(begin, holes_are_real=holes_are_real)
        self._source, self._on_lost = source, on_lost
        self._log = log.bind(group=group)

    async def admit(self, place: Place, batch: RecordBatch) -> bool:
        """Return whether `batch` is to be processed; otherwise have the right one fetched."""
        if place not in self.positions:
            return False
        decision = self.positions.judge(place, batch)
        if decision is FetchDecision.GAP:
            await self.skip_lost(place)
            decision = self.positions.judge(place, batch)
        if decision is FetchDecision.GAP:
            self._log.warning("fetch.gap", **self._where(place), got=batch.begin)
            await self._fetch_again(place)
        elif decision is FetchDecision.HOLE:
            self._log.info("fetch.hole", **self._where(place), missing=missing(batch))
            await asyncio.sleep(HOLE_WAIT_S)
            await self._fetch_again(place)
        return decision is FetchDecision.TAKE

    async def _fetch_again(self, place: Place) -> None:
        await self._source.seek_wait({place: self.positions[place]})

    async def skip_lost(self, place: Place) -> None:
        """Continue where the log now begins: retention has deleted what was before."""
        where, earliest = self._where(place), await self._source.earliest_offsets(place)
        begin = self.positions[place]
        if lost := self.positions.skip_lost(place, earliest[place]):
            self._log.error("records.lost_to_retention", **where, next=begin + lost, lost=lost)
            await self._on_lost(place, range(begin, begin + lost))

    def _where(self, place: Place) -> dict[str, object]:
        return {"at": str(place), "expected": self.positions[place]}
