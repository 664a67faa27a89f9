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
from sinks.connections import PostgresUnreachable
from sinks.postgres.batch_writer import BatchWriter, First, Last, OnRefused
from sinks.postgres.encryption.master_keys import EncryptionKeyMissing, UnusableEncryptionKey
from sinks.postgres.permissions import REFUSED, PermissionMissing
from topics.epoch import Epoch

log = structlog.get_logger()

_AWAY: Final = (
    PostgresUnreachable,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ReadOnlySqlTransaction,
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
        self.retrying = False
        """Whether a batch waits for Postgres."""

    async def next_offsets(self) -> Mapping[int, int]:
        """Return by partition where the last transaction ended.

        Raises `PostgresUnreachable`, and psycopg's `OperationalError` and `InterfaceError`.
        """
        try:
            sink = await self._open()
            return await sink.next_offsets(self._spec.topic, self._epoch.number)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            await self.close()
            raise

    async def store(
        self, unpacked: SinkBatch, offsets: Mapping[int, int], on_refused: OnRefused
    ) -> None:
        """Store one batch and the next offset of each partition, in one transaction.

        While Postgres is away, wait: the queue fills and fetching stops. `on_refused` is awaited
        before the commit. Raises `TooManyRejectedRows`.
        """
        attempt = 0
        notices = None if self._notices is None else self._notices.of_batch(unpacked, offsets)
        first, last = self._hooks(unpacked, notices)
        while True:
            try:
                sink = await self._open()
                stored = await sink.store(
                    unpacked.lines,
                    offsets,
                    topic=self._spec.topic,
                    epoch=self._epoch.number,
                    on_refused=on_refused,
                    first=first,
                    last=last,
                    touched=unpacked.touched,
                )
            except asyncio.CancelledError:
                await self.close()  # a statement may still run on the connection
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
                break
        if notices is not None and self._outbox is not None and (found := notices.committed()):
            self._counts.notices += found
            self._outbox.wake()

    def _hooks(
        self, unpacked: SinkBatch, notices: BatchNotices | None
    ) -> tuple[First | None, Last | None]:
        """Return what else is done in the transaction of a batch, before and after its lines."""
        if notices is not None:
            return notices.add, None
        if not self._spec.purges:
            return None, None
        purges = BatchPurges(unpacked, self._epoch)
        return purges.begin, purges.end

    async def _open(self) -> BatchWriter:
        if self._sink is None:
            self._sink = await self._spec.sink.open(self._postgres)
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
