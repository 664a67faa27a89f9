"""Puts in order what Faust's streams bring: old batches dropped, gaps and holes fetched again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog
from faust.types import TP

from processing.positions import Positions, Verdict
from processing.records import RecordBatch

log = structlog.get_logger()

HOLE_WAIT_S: Final = 0.01


class Intake:
    """The source partitions of one assignment: which batch may be taken next."""

    def __init__(
        self, app: Any, group: str, begin: Mapping[TP, int], *, holes_are_real: bool
    ) -> None:
        """`begin`: where each partition begins. See `Positions` for the holes."""
        self.generation = app.consumer_generation_id
        self.positions: Positions[TP] = Positions(begin, holes_are_real=holes_are_real)
        self._app = app
        self._log = log.bind(group=group)

    async def admit(self, tp: TP, generation: int, batch: RecordBatch) -> bool:
        """Return whether `batch` is to be processed; otherwise see that the right one comes."""
        if generation != self.generation or tp not in self.positions:
            return False
        verdict = self.positions.judge(tp, batch)
        if verdict is Verdict.GAP:
            await self._skip_lost(tp)
            verdict = self.positions.judge(tp, batch)
        if verdict is Verdict.GAP:
            self._log.warning("fetch.gap", at=self._where(tp), got=batch.begin)
            await self._app.consumer.seek_wait({tp: self.positions[tp]})
        elif verdict is Verdict.HOLE:
            missing = batch.end - batch.begin - len(batch)
            self._log.info("fetch.hole", at=self._where(tp), missing=missing)
            await asyncio.sleep(HOLE_WAIT_S)
            await self._app.consumer.seek_wait({tp: self.positions[tp]})
        return verdict is Verdict.TAKE

    async def _skip_lost(self, tp: TP) -> None:
        """Go on where the log now begins: retention has taken what was before."""
        earliest = (await self._app.consumer.earliest_offsets(tp))[tp]
        where = self._where(tp)
        if lost := self.positions.skip_lost(tp, earliest):
            self._log.error("log.lost", at=where, lost=lost)

    def _where(self, tp: TP) -> str:
        return f"{tp.topic}-{tp.partition}:{self.positions[tp]}"
