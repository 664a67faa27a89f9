"""Retains acknowledged events in their spools until no broker can lose them: see decision 0026.

A snapshot is taken now and then: each spool's acknowledged position, and the log's end offsets.
Once both consumer groups have committed offsets at those ends, the snapshot's events are consumed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from headstart.shipping.sender import Sender
from headstart.spool.reader import SpoolReader

log = logging.getLogger("headstart")

QUERY_S: Final = 0.5
"""Seconds between queries of the committed offsets, while events are retained."""
RETAINED_BYTES: Final = 256 << 20
"""Most bytes of whole segments retained per sender; beyond, the oldest are released and logged."""
_LOG_INTERVAL_S: Final = 60.0


@dataclass(frozen=True)
class _Snapshot:
    """Each spool's acknowledged position, and the end offsets of the log at that time."""

    acknowledged: dict[SpoolReader, int]
    ends: dict[int, int]


class Retention:
    """Retention for the spools of one sender; set `sender` before it connects."""

    sender: Sender

    def __init__(
        self,
        kafka: str,
        readers: Callable[[], Collection[SpoolReader]],
        read_again: Callable[[SpoolReader], None],
    ) -> None:
        """`kafka`: for log messages. `readers`: returns the spools of the sender.

        `read_again`: called with each spool that was rewound.
        """
        self._kafka, self._readers, self._read_again = kafka, readers, read_again
        self._volatile = False
        self._snapshot: _Snapshot | None = None
        self._task: asyncio.Task[None] | None = None
        self._queried_at = self._logged_at = -_LOG_INTERVAL_S
        self._released = 0
        self._unretained: set[SpoolReader] = set()

    def note_connection(self, volatile: bool, lost: bool) -> None:
        """Retain what a volatile broker acknowledges; read again what it has lost.

        See `headstart.shipping.sender.OnConnect`.
        """
        self._volatile = volatile
        again = 0
        for reader in self._readers():
            if lost:
                again += reader.rewind()
                self._read_again(reader)
            self._retain(reader)
        if lost:
            self._snapshot = None
            log.warning(
                "the broker at %s has lost its log: %d events that it had acknowledged, but that "
                "were not known to be consumed, are sent again; those that are too old, or no "
                "longer in the spool, are counted as lost",
                self._kafka,
                again,
            )

    def add(self, reader: SpoolReader) -> None:
        """Retain the acknowledged events of a new spool, if the log is volatile."""
        if self._volatile:
            self._retain(reader)

    def _retain(self, reader: SpoolReader) -> None:
        try:
            reader.retain(keep=self._volatile)
        except OSError as error:
            if reader not in self._unretained:
                log.warning(
                    "%s cannot retain acknowledged events until its disk can be written: %s",
                    reader.folder,
                    error,
                )
            self._unretained.add(reader)
        else:
            if reader in self._unretained:
                log.info("%s retains acknowledged events from now on", reader.folder)
            self._unretained.discard(reader)

    def poll(self) -> None:
        """Query the committed offsets, if that is due and events are retained. Called often."""
        if not self._volatile:
            return
        now = time.monotonic()
        if now - self._queried_at < QUERY_S or (self._task is not None and not self._task.done()):
            return
        present = self._readers()
        self._unretained.intersection_update(present)
        for reader in list(self._unretained):  # its disk may have been full
            self._queried_at = now
            self._retain(reader)
        retaining = [each for each in present if each.retained]
        if retaining:
            self._queried_at = now
            self._limit(retaining)
            self._task = asyncio.get_running_loop().create_task(self._query(retaining))

    async def _query(self, retaining: Collection[SpoolReader]) -> None:
        if self._snapshot is None:
            self._snapshot = _Snapshot(
                {each: each.marks.acknowledged for each in retaining}, dict(self.sender.ends)
            )
        snapshot = self._snapshot
        committed = await self.sender.committed()
        if committed is None or snapshot is not self._snapshot:
            return
        for partition, end in snapshot.ends.items():
            if any(offsets.get(partition, 0) < end for offsets in committed.values()):
                return
        self._snapshot = None
        present = self._readers()
        for reader, acknowledged in snapshot.acknowledged.items():
            if reader in present:
                reader.mark_consumed(acknowledged)

    def _limit(self, retaining: Collection[SpoolReader]) -> None:
        over = sum(each.retained_bytes for each in retaining) - RETAINED_BYTES
        for reader in retaining:
            while over > 0 and (count := reader.release_oldest()):
                self._released += count
                over = sum(each.retained_bytes for each in retaining) - RETAINED_BYTES
        if self._released and time.monotonic() - self._logged_at > _LOG_INTERVAL_S:
            log.warning(
                "%d acknowledged events are no longer retained, because no worker consumes them: "
                "they are lost if the embedded broker ends before one does",
                self._released,
            )
            self._logged_at, self._released = time.monotonic(), 0

    async def close(self) -> None:
        """Stop querying."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
