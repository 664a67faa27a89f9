"""Carries out a purge: the control record first, then Postgres, then the wait for the workers.

The control record decides: workers apply it at its offset even if this process ends right after
sending it, and a repetition is another purge of the same subject, which ends the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from psycopg import AsyncConnection

from memory.store.conflicts import repeated
from processing.contexts.cache import FORGOTTEN_BYTES, forgotten_bytes
from processing.state.rows import CONTEXT, context_of
from processing.state.tombstones import MARKER_RETENTION_S
from replay.log.live_table import read_next_offsets, read_whole_table
from sinks.postgres.packed_purges import count_packed
from sinks.postgres.progress import stored_offsets
from sinks.postgres.purges import (
    erase,
    erase_history,
    open_runs,
    preview_purge,
    read_purges,
    require_rights_to_erase,
)
from sinks.postgres.reading import reading_postgres
from sinks.postgres.tenant_locks import lock_tenants
from topics.catalogue import (
    EPISODES_GROUP,
    EVENTS,
    HISTORY_GROUP,
    THRESHOLDS,
    THRESHOLDS_GROUP,
)
from topics.control.log import send_control
from topics.control.messages import MAX_RUNS, Purge
from topics.control.purges import context_matcher, subject_name
from topics.epoch import Epoch, read_epoch
from topics.kafka.reader import topic_state

_FULL_RECORD: Final = FORGOTTEN_BYTES - 10_000
"""Bytes that a record deletes in any case where there is more: less than one row fits the rest."""
_LOOK_S: Final = 0.1
_SAY_S: Final = 5.0


@dataclass(frozen=True)
class PurgeServices:
    """Where a purge is carried out."""

    kafka: str
    postgres: str
    operators_key: bytes | None = field(default=None, repr=False)
    marks_s: float = MARKER_RETENTION_S
    """How long the threshold workers keep marks of deleted contexts."""


class PurgePreview(msgspec.Struct, frozen=True):
    """What a purge would delete now."""

    events: int
    episodes: int
    contexts: int
    """Learned contexts with the subject in their path."""
    open_runs: int
    """Runs of the user with events that name no user; those are deleted too."""
    retrievals: int = 0
    """Logged retrievals that the user asked for."""
    records: int = 1
    """Control records of each partition that it takes to delete these contexts."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.events or self.episodes or self.contexts or self.retrievals)


class PurgeResult(msgspec.Struct):
    """What a purge has done so far."""

    id: str
    at: int
    epoch: int
    offsets: dict[int, int]
    """Offset of the last control record, by partition."""
    rows: dict[str, int]
    """Rows deleted in Postgres by this process, by table."""
    seconds: float = 0.0
    waiting: dict[str, list[int]] = {}
    """Partitions in which a worker has not reached the record yet, by consumer group."""


async def look_up_purge(services: PurgeServices, purge: Purge) -> tuple[Purge, PurgePreview]:
    """Return the purge, with the runs that it needs, and what it would delete.

    Raises `BrokerUnreachable`, `TopicsMissing`, `PostgresUnreachable` and `NotMigrated`.
    """
    async with reading_postgres(services.postgres) as connection:
        purge, events, episodes, retrievals = await look_up_stored(connection, purge)
    tables = await read_whole_table(services.kafka, await read_epoch(services.kafka))
    holds = context_matcher(purge)
    found = [
        [key for key in table.rows if key[:1] == CONTEXT and holds(*context_of(key))]
        for table in tables.values()
    ]
    contexts, records = sum(map(len, found)), records_for(map(forgotten_bytes, found))
    return purge, PurgePreview(events, episodes, contexts, len(purge.runs), retrievals, records)


def records_for(forgotten: Iterable[int]) -> int:
    """Return how many records a purge takes that deletes contexts of so many bytes by partition."""
    return max([1, *(-(-each // _FULL_RECORD) for each in forgotten)])


async def look_up_stored(
    connection: AsyncConnection[Any], purge: Purge
) -> tuple[Purge, int, int, int]:
    """Return the purge, with the runs that it needs, and what it covers.

    That is the number of events, of episodes, and of retrievals that the user asked for. Packed
    events are counted where they are, and stay packed.
    """
    async with connection.transaction():
        packed = await count_packed(connection, purge)
        runs: Sequence[str] = ()
        if purge.user_id is not None:
            named = await _named_before(connection, purge)
            runs = await open_runs(connection, purge.tenant, purge.user_id, packed, named)
        purge = msgspec.structs.replace(purge, runs=tuple(runs))
        events, episodes, retrievals = await preview_purge(connection, purge)
    events += packed.events + sum(packed.unnamed[run] for run in runs)
    return purge, events, episodes, retrievals


async def _named_before(connection: AsyncConnection[Any], purge: Purge) -> set[str]:
    """Return the runs that earlier purges of the subject named.

    If the command was killed between two partitions, only these tell whose they were: the events
    with the user are gone where the record arrived, and those without are left elsewhere.
    """
    stored = await read_purges(connection, [purge.tenant])
    subject = subject_name(purge)
    return {
        run for each in stored if subject_name(each.purge) == subject for run in each.purge.runs
    }


async def carry_out(
    services: PurgeServices,
    purge: Purge,
    echo: Callable[[str], None],
    patience_s: float,
    records: int = 1,
) -> PurgeResult:
    """Send a purge, delete what Postgres has, and wait up to `patience_s` seconds for the workers.

    `records`: see `PurgePreview`.
    Raises what sending and Postgres raise; once it is sent, workers carry it out in any case.
    Nothing is sent if the role of the connection may not delete all of it: `PermissionMissing`.
    """
    epoch = await read_epoch(services.kafka)
    async with reading_postgres(services.postgres) as connection:
        await require_rights_to_erase(connection)
    begun = time.monotonic()
    offsets: dict[int, int] = {}
    for part in purge_parts(purge, records):
        offsets = await send_control(services.kafka, part, services.operators_key)
    echo(f"purge {purge.id} is in all {len(offsets)} partitions of {EVENTS.name}")
    result = PurgeResult(purge.id, purge.at, epoch.number, offsets, {})
    async with reading_postgres(services.postgres) as connection:
        result.rows = await _erase(connection, purge)
    result.seconds = round(time.monotonic() - begun, 3)
    echo(f"deleted {sum(result.rows.values()):,} rows in Postgres in {result.seconds:.1f} s")
    result.waiting = await wait_for_workers(services, epoch, offsets, echo, patience_s)
    if not result.waiting:
        await _history(services, epoch, purge, result, patience_s)
    return result


async def _erase(connection: AsyncConnection[Any], purge: Purge) -> dict[str, int]:
    """Delete what Postgres has; return rows by table. Begins again where a deadlock ended it."""

    async def once() -> dict[str, int]:
        async with connection.transaction():
            await lock_tenants(connection, (), [purge.tenant])
            # Without the offsets: a row that says that the sink is past them would be wrong.
            return await erase(connection, purge)

    return await repeated(once)


async def _history(
    services: PurgeServices, epoch: Epoch, purge: Purge, result: PurgeResult, patience_s: float
) -> None:
    """Delete the thresholds that were on their way to the history while contexts were deleted."""
    end = (await topic_state(services.kafka, THRESHOLDS.name)).end
    deadline = time.monotonic() + patience_s
    async with reading_postgres(services.postgres) as connection:
        while True:
            of = HISTORY_GROUP, THRESHOLDS.name, epoch.number
            stored = await stored_offsets(connection, *of)
            behind = [n for n, offset in sorted(end.items()) if stored.get(n, 0) < offset]
            if not behind or time.monotonic() > deadline:
                break
            await asyncio.sleep(_LOOK_S)
        if behind:
            result.waiting[HISTORY_GROUP] = behind
        for table, count in (await erase_history(connection, purge)).items():
            result.rows[table] = result.rows.get(table, 0) + count


def purge_parts(purge: Purge, records: int = 1) -> list[Purge]:
    """Return purges that together do what `purge` does, each small enough for a record.

    They name all of its runs. Of `records` each is a millisecond later than the one before: only
    so does a threshold worker take it for another, and deletes further contexts.
    """
    runs, replace = purge.runs, msgspec.structs.replace
    named = [runs[at : at + MAX_RUNS] for at in range(0, len(runs), MAX_RUNS)] or [()]
    later = [replace(purge, at=purge.at + n, runs=()) for n in range(1, records)]
    return [*(replace(purge, runs=some) for some in named), *later]


async def wait_for_workers(
    services: PurgeServices,
    epoch: Epoch,
    offsets: Mapping[int, int],
    echo: Callable[[str], None],
    patience_s: float,
) -> dict[str, list[int]]:
    """Wait until sink and threshold worker have passed offsets; return where they have not."""
    begun = said = time.monotonic()
    while True:
        waiting = not_passed(await worker_offsets(services, epoch), offsets)
        now = time.monotonic()
        if not waiting or now - begun >= patience_s:
            return waiting
        if now - said >= _SAY_S:
            said = now
            for group, partitions in waiting.items():
                echo(f"waiting for {group} in {len(partitions)} partitions")
        await asyncio.sleep(_LOOK_S)


async def worker_offsets(services: PurgeServices, epoch: Epoch) -> dict[str, dict[int, int]]:
    """Return the next offset of event sink and threshold worker by partition, by group."""
    async with reading_postgres(services.postgres) as connection:
        stored = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch.number)
    learned = await read_next_offsets(services.kafka, epoch.number)
    return {EPISODES_GROUP: stored, THRESHOLDS_GROUP: learned}


def not_passed(
    reached: Mapping[str, Mapping[int, int]], offsets: Mapping[int, int]
) -> dict[str, list[int]]:
    """Return the partitions in which a group has not passed an offset yet, by group."""
    found = {
        group: [n for n, offset in sorted(offsets.items()) if of_group.get(n, 0) <= offset]
        for group, of_group in reached.items()
    }
    return {group: partitions for group, partitions in found.items() if partitions}
