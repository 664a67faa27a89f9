"""Stores batches in Postgres, each in one transaction with the offsets that follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import psycopg
import structlog

from agents.config import WorkerConfig
from agents.health.metrics import WorkerCounts
from agents.retry_delays import AT_WORK_S, delay_s
from agents.storage.notice_detection import BatchNotices, NoticeDetector
from agents.storage.notice_outbox import NoticeOutbox
from agents.storage.purging import BatchPurges
from processing.records.sink_lines import SinkBatch, Unpack
from sinks.connections import POSTGRES_LOST
from sinks.postgres.batch_writer import BatchWriter, Hooks, OnRefused
from sinks.postgres.encryption.master_keys import EncryptionKeyMissing, UnusableEncryptionKey
from sinks.postgres.permissions import REFUSED, PermissionMissing
from sinks.postgres.progress import TransactionsLost, require_known
from topics.epoch import Epoch

log = structlog.get_logger()

_AWAY: Final = (
    *POSTGRES_LOST,
    psycopg.errors.InsufficientPrivilege,
    EncryptionKeyMissing,
    UnusableEncryptionKey,
)
"""What a batch waits for: Postgres itself, or what an administrator restores."""


@dataclass(frozen=True)
class SinkSpec:
    """Which topic goes into which table."""

    group: str
    topic: str
    sink: type[BatchWriter]
    unpack: Unpack
    purges: bool = False
    """Whether purges are carried out in it."""


class TransactionWriter:
    """The connection of one sink agent; retries until Postgres has stored a batch."""

    def __init__(
        self,
        spec: SinkSpec,
        config: WorkerConfig,
        epoch: Epoch,
        counts: WorkerCounts,
        notices: NoticeDetector | None,
        outbox: NoticeOutbox | None,
    ) -> None:
        """`notices`, `outbox`: find and send notices of what is stored; the history sink's."""
        self._spec, self._postgres, self._epoch = spec, config.postgres, epoch
        self._counts, self._notices, self._outbox = counts, notices, outbox
        self._sink: BatchWriter | None = None
        self._opening = asyncio.Lock()
        self._known: dict[int, int] = {}
        """Offsets by partition of which Postgres has confirmed that they are stored."""
        self.retrying = False
        """Whether a batch waits for Postgres."""

    async def next_offsets(self) -> Mapping[int, int]:
        """Return by partition where the last transaction ended.

        Raises the errors in `POSTGRES_LOST`.
        """
        try:
            stored = await self._stored_offsets(await self._open())
        except POSTGRES_LOST:
            await self.close()
            raise
        self._known = dict(stored)
        return stored

    async def check(self) -> None:
        """Compare the offsets that Postgres has with those that are known to be stored.

        Raises `TransactionsLost`. An error of the connection is left to the next batch.
        """
        known = dict(self._known)
        if not known or self.retrying:
            return
        sink = None
        try:
            sink = await self._open()
            stored = await self._stored_offsets(sink)
        except POSTGRES_LOST:
            if self._sink is sink:
                await self.close()
            return
        require_known(stored, known)

    def forget(self) -> None:
        """Forget which offsets are stored: other partitions may be assigned."""
        self._known = {}

    async def _stored_offsets(self, sink: BatchWriter) -> Mapping[int, int]:
        return await sink.next_offsets(self._spec.topic, self._epoch.number)

    async def store(
        self, unpacked: SinkBatch, offsets: Mapping[int, int], on_refused: OnRefused
    ) -> None:
        """Store one batch and the next offset of each partition, in one transaction.

        While Postgres is away, wait: the queue fills and fetching stops. `on_refused` is awaited
        before the commit. Raises `TooManyRejectedRows`, and `TransactionsLost`: then nothing is
        stored.
        """
        attempt = 0
        notices = None if self._notices is None else self._notices.of_batch(unpacked, offsets)
        hooks = self._hooks(unpacked, notices)
        while True:
            try:
                sink = await self._open()
                stored = await sink.store(
                    unpacked.lines,
                    offsets,
                    topic=self._spec.topic,
                    epoch=self._epoch.number,
                    on_refused=on_refused,
                    known=self._known,
                    hooks=hooks,
                    touched=unpacked.touched(self._spec.sink.touched),
                )
            except asyncio.CancelledError:
                await self.close()  # a statement may still run on the connection
                raise
            except TransactionsLost:
                self.retrying = False
                raise
            except _AWAY as error:
                if attempt == 0:
                    log.warning("postgres.unavailable", error=reason(error, self._postgres))
                self.retrying = True
                self._counts.postgres_failures += 1
                await self.close()
                await asyncio.sleep(delay_s(AT_WORK_S, attempt))
                attempt += 1
            else:
                if attempt:
                    log.info("postgres.available", attempts=attempt)
                self._counts.rows += stored
                self.retrying = False
                self._note(offsets)
                break
        if notices is not None and self._outbox is not None and (found := notices.committed()):
            self._counts.notices += found
            self._outbox.wake()

    def _hooks(self, unpacked: SinkBatch, notices: BatchNotices | None) -> Hooks:
        if notices is not None:
            return Hooks(notices.add)
        if not self._spec.purges:
            return Hooks()
        purges = BatchPurges(unpacked, self._epoch)
        return Hooks(purges.begin, purges.end)

    def _note(self, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self._known[partition] = max(offset, self._known.get(partition, 0))

    async def _open(self) -> BatchWriter:
        async with self._opening:  # by a batch and by `check`
            if self._sink is None:
                self._sink = await self._spec.sink.open(self._postgres)
                if self._outbox is not None:
                    self._outbox.forget_stored()
            return self._sink

    async def close(self) -> None:
        """Disconnect; the next batch connects again."""
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()


def reason(error: Exception, dsn: str) -> str:
    """Return an error of Postgres in one line; of a missing permission, how to grant it."""
    if isinstance(error, REFUSED):
        return str(PermissionMissing(dsn, error))
    return " ".join(str(error).split()) or type(error).__name__
