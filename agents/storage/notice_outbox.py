"""Sends notices: those that Postgres holds and `headstart.notices` has not, and those of overrides.

It lives in the history worker, beside what finds them. Postgres is the outbox: a notice is marked
when the broker has it, so a crash between the two sends it again, with the same id. Nothing waits
for it, and what is away is tried again. What was sent long ago is deleted.
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

AT_ONCE: Final = 20
"""Keeps a record batch below the topic's limit, whatever people write into their reasons."""
RETRY_S: Final = 5.0
LOOK_S: Final = 30.0
"""How long a notice may wait that nobody wakes this worker for: the owner before it found it as
the partition went, or a commit took effect whose answer was lost."""
FORGET_S: Final = 3_600.0
EXPIRES_MS: Final = 1_000
"""How soon it is seen that an override has expired."""
_AWAY = (ConnectionError, KafkaError, OSError, TimeoutError, TopicsMissing, psycopg.Error)


class NoticeOutbox:
    """Sends the notices of the partitions that this worker has."""

    def __init__(self, config: WorkerConfig, epoch: Epoch, producer: BatchProducer) -> None:
        self._kafka, self._postgres, self._producer = config.kafka, config.postgres, producer
        self._operators_key = config.rules.operators_key
        self._weigh, self._days = config.weigh_floods, config.notices_days
        self._partitions = epoch.partitions
        self._owned: frozenset[int] = frozenset()
        self._wanted = asyncio.Event()
        self._kept: set[str] = set()
        """Ids of notices of overrides that Postgres has."""

    def own(self, partitions: Iterable[int]) -> None:
        """Send from now on the notices of these partitions, also what others left."""
        self._owned = frozenset(partitions)
        self._wanted.set()

    def wake(self) -> None:
        """Look for what is to be sent: there is some."""
        self._wanted.set()

    async def run(self) -> None:
        """Send, and tell of overrides, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep_on("notices", self._send_wanted))
            tasks.create_task(_keep_on("overrides", self._tell_of_overrides))
            tasks.create_task(_keep_on("retention", self._forget))

    async def _send_wanted(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), LOOK_S)
        await self.send()

    async def _forget(self) -> None:
        async with await connect_postgres(self._postgres) as connection:
            while await delete_sent(connection, self._days):
                pass
        await asyncio.sleep(FORGET_S)

    async def send(self) -> None:
        """Send all that the topic does not have. Raises what is away."""
        self._wanted.clear()
        try:
            async with await connect_postgres(self._postgres) as connection:
                while found := await unsent_notices(connection, self._owned, AT_ONCE):
                    await self._producer.send_records(EVENTS.name, self._controls(found))
                    records = [notice_record(notice, partition) for partition, notice in found]
                    await self._producer.send_records(NOTICES.name, records)
                    await mark_sent(connection, [notice.id for _partition, notice in found])
        except BaseException:
            self._wanted.set()
            raise

    def _controls(self, found: Iterable[tuple[int, Notice]]) -> list[OutgoingRecord]:
        records: list[OutgoingRecord] = []
        for partition, notice in found:
            weighing = downweight_for(notice)
            if weighing is not None and (self._weigh or weighing.every == 1):
                records += control_records(weighing, [partition], self._operators_key)
        return records

    async def _tell_of_overrides(self) -> None:
        """Keep the notices of overrides that this worker's partitions own, once each."""
        following = follow_overrides(self._kafka, _now, EXPIRES_MS)
        async with contextlib.aclosing(following):
            async for due in following:
                placed = [
                    (partition_for(n.tenant, n.workflow_type, self._partitions), n) for n in due
                ]
                new = [
                    (partition, notice)
                    for partition, notice in placed
                    if partition in self._owned and notice.id not in self._kept
                ]
                if new:
                    async with await connect_postgres(self._postgres) as connection:
                        if await add_notices(connection, new):
                            self.wake()
                self._kept = {n.id for n in due if n.id in self._kept} | {n.id for _p, n in new}


async def _keep_on(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Work again and again; while something is away, say so once and try again later."""
    said = ""
    while True:
        try:
            await work()
            said = ""
        except _AWAY as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            if reason != said:
                log.warning("notices.wait", of=what, reason=reason, retry_s=RETRY_S)
            said = reason
            await asyncio.sleep(RETRY_S)


def _now() -> int:
    return time.time_ns() // 1_000_000
