"""Puts in order what is fetched: old batches dropped, gaps and holes fetched again.

Knows neither Faust nor Kafka; whoever fetches is the `FetchSource`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

import structlog

from processing.records.batch import RecordBatch
from processing.records.offset_tracker import FetchDecision, OffsetTracker, missing

log = structlog.get_logger()

HOLE_WAIT_S: Final = 0.01

Place = TypeVar("Place")
"""Whatever names a partition."""
Place_contra = TypeVar("Place_contra", contravariant=True)


class FetchSource(Protocol[Place_contra]):
    """Where batches come from."""

    async def earliest(self, place: Place_contra, /) -> int:
        """Return the first offset that is still there."""
        ...

    async def seek(self, place: Place_contra, offset: int, /) -> None:
        """Fetch from `offset` on."""
        ...


class FetchSequencer(Generic[Place]):
    """The source partitions of one assignment: which batch may be taken next."""

    def __init__(
        self,
        source: FetchSource[Place],
        group: str,
        begin: Mapping[Place, int],
        *,
        holes_are_real: bool,
        on_lost: Callable[[int], None] = lambda _records: None,
    ) -> None:
        """`begin`: where each partition begins. See `OffsetTracker` for the holes.

        `on_lost` is told how many records the log no longer has.
        """
        self.positions: OffsetTracker[Place] = OffsetTracker(begin, holes_are_real=holes_are_real)
        self._source, self._on_lost = source, on_lost
        self._log = log.bind(group=group)

    async def admit(self, place: Place, batch: RecordBatch) -> bool:
        """Return whether `batch` is to be processed; otherwise see that the right one comes."""
        if place not in self.positions:
            return False
        verdict = self.positions.judge(place, batch)
        if verdict is FetchDecision.GAP:
            await self._skip_lost(place)
            verdict = self.positions.judge(place, batch)
        if verdict is FetchDecision.GAP:
            self._log.warning("fetch.gap", **self._where(place), got=batch.begin)
            await self._source.seek(place, self.positions[place])
        elif verdict is FetchDecision.HOLE:
            self._log.info("fetch.hole", **self._where(place), missing=missing(batch))
            await asyncio.sleep(HOLE_WAIT_S)
            await self._source.seek(place, self.positions[place])
        return verdict is FetchDecision.TAKE

    async def _skip_lost(self, place: Place) -> None:
        """Go on where the log now begins: retention has taken what was before."""
        where = self._where(place)
        if lost := self.positions.skip_lost(place, await self._source.earliest(place)):
            self._log.error("log.lost", **where, lost=lost)
            self._on_lost(lost)

    def _where(self, place: Place) -> dict[str, object]:
        return {"at": str(place), "expected": self.positions[place]}
