"""Verify: replays the log and compares the result with the table, Redis and Postgres.

Events that are missing in Postgres are looked for here; those that the dead-letter topic has as
refused by the database are none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from psycopg import AsyncConnection

from learners.policy import spec
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.decode import decode_record
from processing.records.headers import is_for_group
from processing.state.rows import CONTEXT, decode_context, is_deleted
from replay.log.live_table import Rows, applied_offset, live, read_settled
from replay.log.purges import read_log_purges
from replay.log.replay import replay_partition
from replay.log.snapshots import Snapshot
from replay.log.unprocessed import Unprocessed, count_beyond
from replay.verify.row_diff import Findings, compare_rows
from replay.verify.served import FIX, FOREIGN_FIX, ServedTable, add_wrong
from sinks.postgres.progress import stored_offsets
from sinks.postgres.queries import EventPlace, events_not_stored
from sinks.postgres.reading import reading_postgres
from sinks.redis.commands import CommandPublisher
from sinks.redis.comparison import RedisComparison
from sinks.redis.stored_fields import Field
from sinks.redis.wrong_fields import WrongField
from topics.catalogue import EPISODES_GROUP, EVENTS, THRESHOLDS_GROUP
from topics.commands.log import read_commands
from topics.control.purges import EventSubject, PartitionPurges
from topics.dead_letters.log import DeadLetterLog
from topics.dead_letters.messages import DeadLetterFilter
from topics.epoch import Epoch, read_epoch
from topics.kafka.admin import TopicsMissing
from topics.kafka.reader import topic_state
from topics.kafka.topic_states import TopicState
from topics.schema.event_structs import EventFields

REDIS_PATIENCE_S: Final = 5.0
"""How long a threshold may be on its way to Redis."""
NOT_SEEN_FIX: Final = (
    "retention deleted them unread; once that is known: headstart dead-letters drop"
)
KEPT_FIX: Final = (
    "it stays, because it restricts what executors do: set it by `headstart config set`, or set it "
    "there and then unset it"
)


class AnotherLearner(ValueError):
    """The table was learned by another policy than the one to verify with."""

    def __init__(self, found: str, given: str) -> None:
        super().__init__(f"the table was learned by {found}, not {given}: give --learner {found}")


@dataclass(frozen=True)
class VerifyConfig:
    """What to verify. `snapshot`: what to begin with where the log is cut."""

    kafka: str
    postgres: str
    redis: str
    rules: LearningConfig
    snapshot: Snapshot | None = None
    reference: bool = False
    """Whether the log is replayed without the compiled kernels that workers apply events with."""


@dataclass
class Verified:
    """What was compared, and what was found."""

    findings: Findings = field(default_factory=Findings)
    partitions: int = 0
    records: int = 0
    events: int = 0
    rows: int = 0
    learned: dict[int, int] = field(default_factory=dict)
    """The offset after the last one applied, by partition: what lies behind it was not compared."""
    left: Unprocessed = field(default_factory=Unprocessed)
    """What the log had at the start, and the groups have not processed."""


async def verify(config: VerifyConfig, echo: Callable[[str], None]) -> Verified:
    """Return what was found. `echo` is called with progress messages.

    Raises `BrokerUnreachable`, `TopicsMissing`, `PostgresUnreachable`, `NotMigrated`,
    `RedisUnreachable`, `LogTruncatedByRetention` and `RowAhead`.
    """
    epoch = await read_epoch(config.kafka)
    found = Verified()
    events = await topic_state(config.kafka, EVENTS.name)
    refused = await _refused(config.kafka, found.findings, echo)
    purges = await read_log_purges(config.kafka, config.rules.operators_key)
    async with reading_postgres(config.postgres) as connection:
        stored = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch.number)
        episodes = _Episodes(connection, stored, refused, purges, found)
        served = ServedTable(epoch)
        try:
            for partition in range(epoch.partitions):
                rows = await _partition(config, events, partition, epoch, episodes, found)
                await episodes.finish()
                served.add(partition, rows)
                echo(
                    f"partition {partition + 1} of {epoch.partitions}: {found.events} events, "
                    f"{found.rows} rows so far, {found.findings.counts.total()} findings"
                )
        finally:
            await episodes.close()
    reached = {EPISODES_GROUP: stored, THRESHOLDS_GROUP: found.learned}
    found.left = await count_beyond(config.kafka, events, reached)
    await _redis(config, served, found.findings)
    await _commands(config, found.findings)
    return found


async def _partition(
    config: VerifyConfig,
    events: TopicState,
    partition: int,
    epoch: Epoch,
    episodes: _Episodes,
    found: Verified,
) -> Rows:
    """Replay one partition up to where the table is; return the table's rows."""
    table = await read_settled(config.kafka, partition, epoch.number)
    begin = table.begin
    if config.snapshot is not None:
        begin = config.snapshot.of_epoch(epoch.number).get(partition, begin)
    log = range(events.begin[partition], max(events.begin[partition], table.applied_offset + 1))
    replayed = await replay_partition(
        config.kafka, partition, epoch, config.rules, begin, log, episodes.check,
        reference=config.reference,
    )  # fmt: skip
    if table.applied_offset != (expected := applied_offset(replayed)):
        found.findings.add(
            "watermark", partition=partition, table=table.applied_offset, log=expected
        )
    _check_learner(table.rows, replayed, spec(config.rules.policy))
    compare_rows(found.findings, partition, table.rows, live(replayed))
    found.partitions += 1
    found.learned[partition] = table.applied_offset + 1
    found.rows += len(table.rows)
    return table.rows


def _check_learner(table: Rows, replayed: Rows, given: str) -> None:
    """Raise `AnotherLearner` where the replay learned by the default, and the table by another."""
    for key, row in table.items():
        if key.startswith(CONTEXT) and not is_deleted(replayed.get(key, b"")):
            right = decode_context(replayed[key]).learner if key in replayed else given
            if right == given and (learner := decode_context(row).learner) != given:
                raise AnotherLearner(learner, given)


class _Episodes:
    """Looks for every event of the log in Postgres, up to the progress of the episode sink."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        stored: Mapping[int, int],
        refused: set[str],
        purges: Mapping[int, PartitionPurges],
        found: Verified,
    ) -> None:
        self._connection, self._stored, self._purges = connection, stored, purges
        self._refused, self._found = refused, found
        self._query: asyncio.Task[None] | None = None

    async def check(self, batch: RecordBatch) -> None:
        """Ask Postgres for the events of a batch, while the next one is read and applied."""
        self._found.records += len(batch)
        reached = self._stored.get(batch.partition, 0)
        wanted = []
        for position, offset in enumerate(batch.offsets):
            if not is_for_group(batch.headers.get(offset), EPISODES_GROUP):
                continue
            events, _refused = decode_record(batch.values[position], batch.timestamps[position])
            self._found.events += len(events)
            if offset < reached:
                wanted += [
                    EventPlace(str(each.id), each.tenant, each.timestamp, each.workflow_id)
                    for each in events
                    if not self._is_purged(batch.partition, each, offset)
                ]
        await self.finish()
        if wanted:
            self._query = asyncio.create_task(self._look_up(batch.partition, wanted))

    def _is_purged(self, partition: int, event: EventFields, offset: int) -> bool:
        purges = self._purges[partition]
        if event.tenant not in purges.tenants:
            return False
        subject = EventSubject(
            event.tenant, event.workflow_id, event.timestamp, event.user_id, event.session_id
        )
        return purges.covers(subject, offset)

    async def finish(self) -> None:
        """Wait for the query under way. Raises what it raised."""
        query, self._query = self._query, None
        if query is not None:
            await query

    async def close(self) -> None:
        """Cancel the query under way: after an error its result is not wanted."""
        if self._query is not None:
            self._query.cancel()
            await asyncio.gather(self._query, return_exceptions=True)

    async def _look_up(self, partition: int, wanted: list[EventPlace]) -> None:
        for missing in await events_not_stored(self._connection, wanted):
            if missing not in self._refused:
                self._found.findings.add("episode_missing", partition=partition, id=missing)


async def _refused(kafka: str, findings: Findings, echo: Callable[[str], None]) -> set[str]:
    """Return the ids of the events that the episode sink's database refused.

    Add what retention deleted unread; also say it at once, as the log cannot be replayed then. Of
    what was dropped from the dead letters, only say it.
    """
    letters, ids = await DeadLetterLog.open(kafka), set()
    async for letter in letters.letters(DeadLetterFilter(), handled=True):
        if letter.lost_until is not None and (source := letter.source) is not None:
            echo(f"{source.topic}, partition {source.partition}: {letter.reason}")
            if letters.handling(letter) is None:
                offsets = f"{source.offset} to {letter.lost_until - 1}"
                findings.add(
                    "not_seen", topic=source.topic, partition=source.partition, offsets=offsets,
                    group=letter.group, fix=f"{NOT_SEEN_FIX} {letter.at}",
                )  # fmt: skip
        elif letter.group == EPISODES_GROUP:
            try:
                ids.add(str(orjson.loads(letter.value)["id"]))
            except (orjson.JSONDecodeError, TypeError, KeyError):
                continue  # not an event, so it is not looked up
    return ids


async def _redis(config: VerifyConfig, table: ServedTable, findings: Findings) -> None:
    """Compare what Redis serves with the table; what is on its way gets time."""
    deadline = asyncio.get_running_loop().time() + REDIS_PATIENCE_S
    wrong: dict[Field, WrongField] = {}
    async with RedisComparison(config.redis) as comparison:
        while True:
            foreign: list[dict[str, str]] = []
            found = await table.compare(comparison, config.kafka, foreign)
            coming = [each for each in found if each.fault in ("missing", "behind")]
            # What cannot be on its way is wrong, though a worker may have repaired it since.
            wrong |= {each.stored.field: each for each in found if each not in coming}
            if not coming or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.5)
    wrong |= {each.stored.field: each for each in coming}
    add_wrong(findings, list(wrong.values()))
    for other in foreign:
        what = "no context has this key or field"
        findings.add("redis_foreign", **other, what=what, fix=FOREIGN_FIX)


async def _commands(config: VerifyConfig, findings: Findings) -> None:
    """Compare the modes and overrides that Redis serves with what commands set."""
    try:
        state = await read_commands(config.kafka)
    except TopicsMissing:
        return  # nothing was ever set
    async with CommandPublisher(config.redis) as publisher:
        found = await publisher.look(state, time.time_ns() // 1_000_000)
    for place, merged in found:
        where = {"key": publisher.hash_of(place)}
        for kept in merged.kept:
            findings.add("redis_restricting", **where, what=f"no command set {kept}", fix=KEPT_FIX)
        if merged.changes:
            what = "it does not have the values that commands set"
            findings.add("redis_command", **where, what=what, fix=FIX)
