"""Sends notices from Postgres to `headstart.notices`, and adds those of overrides.

A transactional outbox, in the history worker, which detects notices: a notice is marked when the
broker has it, so a crash in between sends it again, with the same id. Nothing waits for it;
failures are retried. Notices that were sent long ago are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import psycopg
import structlog
from aiokafka.errors import KafkaError

from agents.config import WorkerConfig
from agents.producer import BatchProducer
from processing.records.partitioner import partition_for
from sinks.connections import connect_postgres
from sinks.postgres.notices import add_notices, delete_sent, mark_sent, unsent_notices
from topics.catalogue import EVENTS, NOTICES
from topics.control.messages import control_records
from topics.dead_letters.messages import OutgoingRecord
from topics.epoch import Epoch
from topics.kafka.admin import TopicsMissing
from topics.notices.log import follow_overrides
from topics.notices.messages import Notice, downweight_for, notice_record

log = structlog.get_logger()

BATCH: Final = 20
"""Notices of one record batch: below the topic's limit, however long the reasons given are."""
RETRY_S: Final = 5.0
POLL_S: Final = 30.0
"""How long a notice may wait without a wake-up: the previous owner found it just before it lost
the partition, or the answer to a commit that took effect was lost."""
DELETE_S: Final = 3_600.0
EXPIRES_MS: Final = 1_000
"""How soon an override is noticed to have expired."""
_AWAY = (ConnectionError, KafkaError, OSError, TimeoutError, TopicsMissing, psycopg.Error)


class NoticeOutbox:
    """Sends the notices of the partitions that this worker owns."""

    def __init__(self, config: WorkerConfig, epoch: Epoch, producer: BatchProducer) -> None:
        self._kafka, self._postgres, self._producer = config.kafka, config.postgres, producer
        self._operators_key = config.rules.operators_key
        self._weigh, self._days = config.weigh_floods, config.notices_days
        self._partitions = epoch.partitions
        self._owned: frozenset[int] = frozenset()
        self._wake = asyncio.Event()
        self._stored_ids: set[str] = set()
        """Ids of notices of overrides that Postgres has."""

    def set_partitions(self, partitions: Iterable[int]) -> None:
        """Send the notices of these partitions from now on, also those that others left."""
        self._owned = frozenset(partitions)
        self._wake.set()

    def forget_stored(self) -> None:
        """Store the notices of overrides again: another server may lack them."""
        self._stored_ids.clear()

    def wake(self) -> None:
        """Send new notices soon."""
        self._wake.set()

    async def run(self) -> None:
        """Send notices, and add those of overrides, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_retry_forever("notices", self._send_when_woken))
            tasks.create_task(_retry_forever("overrides", self._store_override_notices))
            tasks.create_task(_retry_forever("retention", self._delete_sent))

    async def _send_when_woken(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), POLL_S)
        await self.send()

    async def _delete_sent(self) -> None:
        async with await connect_postgres(self._postgres) as connection:
            while await delete_sent(connection, self._days):
                pass
        await asyncio.sleep(DELETE_S)

    async def send(self) -> None:
        """Send all notices that the topic does not have. Raises the errors in `_AWAY`."""
        self._wake.clear()
        try:
            async with await connect_postgres(self._postgres) as connection:
                while found := await unsent_notices(connection, self._owned, BATCH):
                    await self._producer.send_records(EVENTS.name, self._controls(found))
                    records = [notice_record(notice, partition) for partition, notice in found]
                    await self._producer.send_records(NOTICES.name, records)
                    await mark_sent(connection, [notice.id for _partition, notice in found])
        except BaseException:
            self._wake.set()
            raise

    def _controls(self, found: Iterable[tuple[int, Notice]]) -> list[OutgoingRecord]:
        records: list[OutgoingRecord] = []
        for partition, notice in found:
            weighing = downweight_for(notice)
            if weighing is not None and (self._weigh or weighing.every == 1):
                records += control_records(weighing, [partition], self._operators_key)
        return records

    async def _store_override_notices(self) -> None:
        """Store the notices of overrides in this worker's partitions, each once."""
        following = follow_overrides(self._kafka, _now, EXPIRES_MS)
        async with contextlib.aclosing(following):
            async for due in following:
                placed = [
                    (partition_for(n.tenant, n.workflow_type, self._partitions), n) for n in due
                ]
                new = [
                    (partition, notice)
                    for partition, notice in placed
                    if partition in self._owned and notice.id not in self._stored_ids
                ]
                if new:
                    async with await connect_postgres(self._postgres) as connection:
                        if await add_notices(connection, new):
                            self.wake()
                self._stored_ids = {n.id for n in due if n.id in self._stored_ids} | {
                    n.id for _p, n in new
                }


async def _retry_forever(job: str, work: Callable[[], Awaitable[None]]) -> None:
    """Repeat `work`; after a failure log it once and retry later."""
    logged = ""
    while True:
        try:
            await work()
            logged = ""
        except _AWAY as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            if reason != logged:
                log.warning("notices.retrying", of=job, reason=reason, retry_s=RETRY_S)
            logged = reason
            await asyncio.sleep(RETRY_S)


def _now() -> int:
    return time.time_ns() // 1_000_000
