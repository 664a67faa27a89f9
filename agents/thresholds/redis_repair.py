"""Compares Redis with the table, slowly, and repairs what differs.

Publishing only writes changes; it does not notice when another writer changes or deletes values in
Redis. So every owner of a partition goes through its contexts at a bounded rate. Each value is read
from Redis before its row, and replaced only if it has not changed since. A value that the log may
still explain is left alone: it may be published ahead of its row, or by the next owner of the
partition (docs/decisions/0025-checking-redis.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from agents.thresholds.contested_fields import ContestedFields
from agents.thresholds.partition import OwnedPartition
from agents.thresholds.services import PartitionServices
from headstart.keys import DEFAULT_PATH
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.records.partitioner import partition_for
from processing.state.rows import CONTEXT, DEFAULT, PARTITION_KEY, context_key, default_key, version
from sinks.redis.comparison import Expected, Repair, StoredField
from sinks.redis.stored_fields import Field, Reach
from sinks.redis.thresholds import encode_value
from sinks.redis.wrong_fields import FieldFindings, WrongField, beyond_log_end, find_wrong
from topics.catalogue import EVENTS
from topics.epoch import PartitionsChanged
from topics.kafka.admin import TopicsMissing
from topics.schema.json_schema import PublishedThreshold

log = structlog.get_logger()

_NOT_IN_TABLE: Final = ("newer", "outdated", "unknown", "expired")
"""Faults that are none if the log was recreated meanwhile."""
PAUSE_S: Final = 0.25
"""After each step, which is 100 contexts: so at most 400 a second are compared, 2 % of a core."""


class RedisChecks:
    """Compares what Redis holds of a worker's partitions with their tables."""

    def __init__(
        self,
        services: PartitionServices,
        owned: Callable[[], Sequence[OwnedPartition]],
        fetched: Callable[[int], int],
        redis_url: str,
        every_s: float,
    ) -> None:
        """`every_s`: seconds between the beginnings of two rounds; 0: never."""
        self._services, self._every_s = services, every_s
        self._owned, self._fetched = owned, fetched
        self._clock, self._at_once = services.env.clock, services.env.tuning.compared_rows
        self._comparison = services.clients.comparison(redis_url)
        self._contested = ContestedFields()
        self._next = self._clock.monotonic_s() + every_s
        self._away = False
        self._ends: Mapping[int, int] = {}
        """The end of each partition's log, when last read."""

    async def close(self) -> None:
        """Close the connections."""
        await self._comparison.close()

    def request_round(self) -> None:
        """Begin the next round at once."""
        self._next = 0.0

    async def work(self) -> None:
        """Run a round if due. If Redis or the broker is away, retry later."""
        now = self._clock.monotonic_s()
        if not self._every_s or now < self._next or self._services.publish_queue.waiting:
            return
        self._next = now + self._every_s
        try:
            await self.round()
            self._away = False
        except (ConnectionError, TopicsMissing, PartitionsChanged) as error:
            if not self._away:
                log.warning("redis_check.retrying", error=str(error))
            self._away = True

    async def round(self) -> None:
        """Compare every context once. Raises `ConnectionError` and the errors of topics."""
        for owned in self._owned():
            begin: bytes | None = CONTEXT
            while begin is not None and owned in self._owned():
                begin = await self._some_rows(owned, begin)
                await asyncio.sleep(PAUSE_S)
        async for fields in self._fields():
            await self._some_fields(fields)
            await asyncio.sleep(PAUSE_S)
        self._services.counts.contested = self._contested.count(self._clock.monotonic_s())

    async def _fields(self) -> AsyncIterator[Sequence[Field]]:
        now = self._clock.now_ms()
        async for fields in self._comparison.fields(tidy_at=now):
            for at in range(0, max(1, len(fields)), self._at_once):
                yield fields[at : at + self._at_once]

    async def _some_rows(self, owned: OwnedPartition, begin: bytes) -> bytes | None:
        """Compare the next contexts; return the key to continue from, None at the end."""
        partition = owned.partition
        rows = self._services.store.page(partition, begin, self._at_once)
        expected = []
        for key, row in rows:
            if (
                is_published(partition, key)
                and (field := self._field(partition, key, row)) is not None
            ):
                expected.append(field)
        await self._compare(owned, expected)
        last = rows[-1][0] if len(rows) == self._at_once else b""
        return last + b"\0" if last.startswith((CONTEXT, DEFAULT)) else None

    def _field(self, partition: int, key: bytes, row: bytes) -> Expected | None:
        """Return the expected value of a row's field; None where another partition owns it."""
        threshold = threshold_from_row(key, row)
        field = Field(threshold.tenant, threshold.workflow_type, threshold.path)
        if self._place(field)[0] != partition:
            return None  # migrated from a log with another partition count
        return Expected(field, encode_value(threshold))

    def _place(self, field: Field) -> tuple[int, bytes]:
        """Return the partition that publishes a field, and the key of its row."""
        if field.path == DEFAULT_PATH:
            return 0, default_key(field.tenant)
        partitions = self._services.epoch.partitions
        place = partition_for(field.tenant, field.workflow_type, partitions)
        return place, context_key(field.tenant, field.path)

    async def _some_fields(self, fields: Sequence[Field]) -> None:
        """Compare fields of Redis that have no row in the table."""
        owned = {each.partition: each for each in self._owned()}
        unknown: dict[int, list[Expected]] = {}
        for field in fields:
            place, key = self._place(field)
            if place in owned and self._services.store.get_row(place, key) is None:
                unknown.setdefault(place, []).append(Expected(field, None))
        for place, expected in unknown.items():
            await self._compare(owned[place], expected)

    async def _compare(self, owned: OwnedPartition, expected: Sequence[Expected]) -> None:
        if not expected:
            return
        stored = await self._comparison.differing(expected)
        wrong, ahead = self._judged(owned, stored)
        partition = owned.partition
        seen = max(self._ends.get(partition, 0), self._fetched(partition))
        if beyond_log_end(ahead, seen):  # rare: mostly they were published ahead of their rows
            self._ends = (
                await self._services.clients.topic_state(self._services.kafka, EVENTS.name)
            ).end
            wrong += beyond_log_end(ahead, self._ends[partition])
        if wrong:
            await self._repair(owned, wrong)

    def _judged(self, owned: OwnedPartition, stored: Iterable[StoredField]) -> FieldFindings:
        """Compare fields with the current rows."""
        partition, store = owned.partition, self._services.store
        row = store.get_row(partition, PARTITION_KEY)
        reach = Reach(*(version(row) if row is not None else (self._services.epoch.number, -1)))
        in_flight = {(each.tenant, each.path) for each in owned.publisher.in_flight}
        found: list[tuple[StoredField, PublishedThreshold | None, Reach]] = []
        for each in stored:
            key = self._place(each.field)[1]
            row = store.get_row(partition, key)
            if (each.field.tenant, each.field.path) not in in_flight:
                found.append((each, None if row is None else threshold_from_row(key, row), reach))
        return find_wrong(found, marks=True)

    async def _repair(self, owned: OwnedPartition, wrong: Sequence[WrongField]) -> None:
        if any(each.fault in _NOT_IN_TABLE for each in wrong):
            epoch = await self._services.clients.read_epoch(self._services.kafka)
            if epoch.number != self._services.epoch.number:
                return  # the log was recreated, and this worker belongs to the previous one
        if not owned.targets.current():
            return
        now = self._clock.monotonic_s()
        due = [e for e in wrong if self._contested.may_repair(e.stored.field, e.fault, now)]
        if not due:
            return
        repairs = [Repair(each.stored, each.threshold) for each in due]
        done = await self._comparison.repair(repairs, self._clock.now_ms())
        repaired = [each for each, was in zip(due, done, strict=True) if was]
        if repaired:
            self._log(owned.partition, repaired, now)

    def _log(self, partition: int, repaired: Sequence[WrongField], now: float) -> None:
        counted: Counter[str] = Counter(each.fault for each in repaired)
        self._services.counts.repaired.update(counted)
        if outdated := counted.pop("outdated", 0):
            log.info("redis_check.outdated_removed", partition=partition, contexts=outdated)
        if expired := counted.pop("expired", 0):
            log.info("redis_check.expired_removed", partition=partition, contexts=expired)
        if counted:
            first = next(each.stored for each in repaired if each.fault in counted)
            log.warning(
                "redis_check.repaired",
                partition=partition,
                **counted,
                tenant=first.field.tenant,
                path=first.field.path,
                was=first.other_type or (first.raw or b"")[:200].decode(errors="backslashreplace"),
            )
        for each in repaired:
            field = each.stored.field
            if self._contested.repaired(field, each.fault, now):
                log.error(
                    "redis_check.contested",
                    tenant=field.tenant,
                    path=field.path,
                    reason=each.fault,
                    meaning="another process writes this value, perhaps another installation that "
                    "uses the same Redis: give each a Redis, or a database number, of its own",
                )
