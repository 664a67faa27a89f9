"""Counts the events of the log that a group has not processed: a deletion would lose them, and
`verify` cannot check them.

Unlike the lag, which counts offsets: those of transaction markers hold no event, and control
records that workers append for themselves are nothing to lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from processing.records.decode import split_frame
from processing.records.headers import is_for_group
from replay.log.live_table import read_next_offsets
from sinks.postgres.progress import stored_offsets
from sinks.postgres.reading import reading_postgres
from topics.catalogue import EPISODES_GROUP, EVENTS, THRESHOLDS_GROUP
from topics.control.messages import Clock, Default, DefaultEvidence, decode_control, is_control
from topics.epoch import read_minted_epoch
from topics.kafka.admin import TopicsMissing
from topics.kafka.fetch_patch import ISOLATION
from topics.kafka.reader import read_records
from topics.kafka.topic_states import TopicState, describe_topics

MOST: Final = 100_000
"""Records to read at most."""
_OF_WORKERS: Final = (Clock, Default, DefaultEvidence)
"""Control records that workers append; they follow from the rest of the log."""


@dataclass(frozen=True)
class Unprocessed:
    """How many events each group has not processed; groups that have none are left out.

    `more`: not all records were read, so there may be more. An event behind an open transaction
    counts, and so do the events of that transaction.
    """

    events: Mapping[str, int] = field(default_factory=dict)
    more: bool = False

    def __str__(self) -> str:
        least = "at least " if self.more else ""
        return " and ".join(
            f"{least}{count:,} events that {group} has not processed"
            for group, count in sorted(self.events.items())
        )


async def count_unprocessed(kafka: str, postgres: str) -> Unprocessed:
    """Count the events of `headstart.events` that the episodes or threshold group lacks.

    The episodes' offsets are those in Postgres, the thresholds' those in the changelog: the offsets
    that the groups commit to Kafka are only hints. Raises `BrokerUnreachable`, `EpochUnreadable`,
    `PostgresUnreachable` and `NotMigrated`; Postgres is not read if the log has no records.
    """
    log = (await describe_topics(kafka, [EVENTS.name])).get(EVENTS.name)
    if log is None or not any(_end(log, n) > log.begin[n] for n in log.end):
        return Unprocessed()
    return await count_beyond(kafka, log, await _reached(kafka, postgres))


async def count_beyond(
    kafka: str, log: TopicState, reached: Mapping[str, Mapping[int, int]]
) -> Unprocessed:
    """Count the events of `log` from the offsets `reached` on, by group and partition.

    A partition that a group has no offset of counts from its beginning. Raises `BrokerUnreachable`.
    """
    found, read = Counter[str](), 0
    async for record in _records(kafka, log, reached):
        for group, offsets in reached.items():
            if record.offset >= offsets.get(record.partition, 0):
                found[group] += _events(record, group)
        read += 1
        if read == MOST:
            break
    return Unprocessed({group: count for group, count in found.items() if count}, read == MOST)


def _end(log: TopicState, partition: int) -> int:
    """Return the end of a partition, including what an open transaction holds back."""
    return max(log.end[partition], log.high.get(partition, 0))


async def _reached(kafka: str, postgres: str) -> dict[str, Mapping[int, int]]:
    """Return the first offset by partition that each group has not processed."""
    reached: dict[str, Mapping[int, int]] = {EPISODES_GROUP: {}, THRESHOLDS_GROUP: {}}
    with suppress(TopicsMissing):  # then no worker has processed anything of this log
        epoch, _partitions = await read_minted_epoch(kafka)
        reached[EPISODES_GROUP] = await _stored(postgres, epoch.number)
        reached[THRESHOLDS_GROUP] = await read_next_offsets(kafka, epoch.number)
    return reached


async def _stored(postgres: str, epoch: int) -> Mapping[int, int]:
    async with reading_postgres(postgres) as connection:
        return await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch)


async def _records(
    kafka: str, log: TopicState, reached: Mapping[str, Mapping[int, int]]
) -> AsyncIterator[Any]:
    """Yield the records that a group has not processed; where one is held back, also open ones."""
    begin = {
        n: max(log.begin[n], min(offsets.get(n, 0) for offsets in reached.values()))
        for n in log.end
    }
    for held, level in ((False, ISOLATION), (True, "read_uncommitted")):
        some = {n: at for n, at in begin.items() if (n in log.held_back) is held}
        end = {n: _end(log, n) for n in some}
        async for record in read_records(kafka, EVENTS.name, some, end, level):
            yield record


def _events(record: Any, group: str) -> int:
    """Return how many events a record has for a group; an operator's control record is one."""
    if not is_for_group(record.headers, group):
        return 0
    if is_control(record.headers):
        with suppress(ValueError):
            return int(not isinstance(decode_control(record.value or b""), _OF_WORKERS))
    with suppress(ValueError):
        return len(split_frame(record.value or b""))
    return 1
