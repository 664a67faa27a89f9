"""Holes between offsets that are none: a broker may show a later batch before an earlier one.

Seen on the embedded broker under several producers: a fetch skipped records that were there a
moment later. Kafka never does, and its holes (compaction, transaction markers) are real.
"""

from __future__ import annotations

from typing import Final

import structlog
from faust.types import TP

from processing.records import RecordBatch

log = structlog.get_logger()

MOST_TRIES: Final = 20
WAIT_S: Final = 0.01


class Holes:
    """Decides whether a fetch with holes is to be fetched again."""

    def __init__(self) -> None:
        self._tries: dict[TP, tuple[int, int]] = {}

    def doubtful(self, tp: TP, batch: RecordBatch) -> bool:
        """Return whether offsets are missing that another fetch from here may yet bring."""
        if len(batch) == batch.end - batch.begin:
            return False
        begin, tries = self._tries.get(tp, (-1, 0))
        tries = tries + 1 if begin == batch.begin else 1
        self._tries[tp] = (batch.begin, tries)
        missing = batch.end - batch.begin - len(batch)
        log.info("fetch.hole", partition=tp.partition, begin=batch.begin, missing=missing)
        return tries <= MOST_TRIES
