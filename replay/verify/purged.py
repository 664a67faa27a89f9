"""Checks that nothing of what was purged is served or stored, and counts what the log still has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson
from psycopg import AsyncConnection

from processing.records.decode import MALFORMED, split_frame
from replay.log.purges import read_log_purges
from replay.purge.run import PurgeServices
from replay.verify.purged_contexts import check_published, check_redis
from replay.verify.row_diff import Findings
from sinks.postgres.progress import stored_offsets
from sinks.postgres.purges import StoredPurge, read_purges, remaining_rows
from sinks.postgres.queries import EventPlace, events_not_stored
from sinks.postgres.reading import reading_postgres
from topics.catalogue import EPISODES_GROUP, EVENTS
from topics.control.messages import is_control
from topics.control.purges import PartitionPurges, PlacedPurge, subject_name, subject_of
from topics.epoch import read_epoch
from topics.kafka.reader import read_records, topic_state

_AT_ONCE: Final = 1_000
_FIX: Final = "run `headstart memory purge` for it again"


class PurgedCheck(msgspec.Struct):
    """What was checked, and what was found."""

    purges: int = 0
    covered_events: int = 0
    """Events in the log that purges cover: retention deletes them."""
    covered_bytes: int = 0
    findings: Findings = msgspec.field(default_factory=Findings)


async def check_purged(services: PurgeServices, redis: str) -> PurgedCheck:
    """Look for purged events in Postgres, and for contexts of purged subjects where executors read.

    A context's deletion mark, which has the subject's name, is one of the findings only once it
    should be gone. Raises `BrokerUnreachable`, `TopicsMissing`, `PostgresUnreachable`,
    `NotMigrated` and `RedisUnreachable`.
    """
    check, kafka = PurgedCheck(), services.kafka
    epoch = await read_epoch(kafka)
    of_log = await read_log_purges(kafka, services.operators_key)
    async with reading_postgres(services.postgres) as connection:
        stored = await read_purges(connection)
        check.purges = len(stored)
        reached = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch.number)
        for each in stored:
            for table, count in (await remaining_rows(connection, each.purge)).items():
                check.findings.add("purged_rows", **_named(each), table=table, rows=count, fix=_FIX)
        await _check_log(kafka, connection, _with_stored(of_log, stored, epoch.number), reached,
                         check)  # fmt: skip
    if stored:
        await check_redis(redis, epoch, stored, services.marks_s, check.findings)
        await check_published(kafka, epoch, stored, services.marks_s, check.findings)
    return check


def _named(stored: StoredPurge) -> dict[str, Any]:
    field, value = subject_name(stored.purge)
    return {"tenant": stored.purge.tenant, field: value}


def _with_stored(
    of_log: Mapping[int, PartitionPurges], stored: list[StoredPurge], epoch: int
) -> Mapping[int, PartitionPurges]:
    """Add the purges of Postgres: retention may have taken their records."""
    for partition, purges in of_log.items():
        for each in stored:
            purges.add(PlacedPurge(each.purge, each.offset(partition, epoch)))
    return of_log


async def _check_log(
    kafka: str,
    connection: AsyncConnection[Any],
    purges: Mapping[int, PartitionPurges],
    reached: Mapping[int, int],
    check: PurgedCheck,
) -> None:
    """Count what the log still has, and look for it in Postgres as far as the sink is."""
    state = await topic_state(kafka, EVENTS.name)
    wanted: list[EventPlace] = []
    async for record in read_records(kafka, EVENTS.name, state.begin, state.end):
        if not purges[record.partition] or is_control(record.headers):
            continue
        for raw in _covered(record.value, purges[record.partition], record.offset):
            check.covered_events += 1
            check.covered_bytes += len(raw)
            event = orjson.loads(raw)
            if record.offset < reached.get(record.partition, 0):
                id, workflow_id = str(event.get("id")), str(event.get("workflow_id"))
                wanted.append(EventPlace(id, event["tenant"], event["timestamp"], workflow_id))
        if len(wanted) >= _AT_ONCE:
            await _look_up(connection, wanted, check)
            wanted = []
    if wanted:
        await _look_up(connection, wanted, check)


def _covered(value: bytes | None, purges: PartitionPurges, offset: int) -> list[bytes]:
    try:
        events = split_frame(value) if value and value.lstrip()[:1] == b"[" else [value or b""]
    except MALFORMED:
        return []
    return [
        raw
        for raw in events
        if (found := subject_of(raw)) is not None and purges.covers(found, offset)
    ]


async def _look_up(
    connection: AsyncConnection[Any], wanted: list[EventPlace], check: PurgedCheck
) -> None:
    missing = set(await events_not_stored(connection, wanted))
    for each in wanted:
        if each.id not in missing:
            check.findings.add("purged_event", tenant=each.tenant, id=each.id, fix=_FIX)
