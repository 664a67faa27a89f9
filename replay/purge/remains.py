"""The receipt of purges: what was deleted, and what still has bytes of it, where and until when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from processing.state.tombstones import MARKER_RETENTION_S
from replay.purge.run import PurgeServices, not_passed, worker_offsets
from sinks.postgres.purges import StoredPurge, purge_counts, read_purges, remaining_rows
from sinks.postgres.reading import reading_postgres
from topics.catalogue import (
    CHANGELOG,
    COMMANDS,
    DEAD_LETTERS,
    DECISIONS,
    EPISODES_GROUP,
    EVENTS,
    MODELS,
    NOTICES,
    THRESHOLDS,
)
from topics.control.purges import subject_name
from topics.epoch import Epoch, read_epoch
from topics.kafka.admin import topic_settings
from topics.kafka.topic_states import TopicState, describe_topics

_BROKER_SEGMENT_MS = 7 * 86_400_000
"""Kafka's default: retention deletes whole segments, and only closed ones."""


class Remainder(msgspec.Struct, frozen=True):
    """A place that may still have bytes of what was purged."""

    where: str
    what: str
    until: int | None = None
    """Unix ms by which they are gone; None: not by time alone."""
    partitions: list[int] = []


class PurgeReceipt(msgspec.Struct, frozen=True):
    """A purge: what it deleted, whether it is complete, and what remains."""

    id: str
    tenant: str
    subject: dict[str, str]
    at: int
    rows: dict[str, int]
    """Deleted rows by table."""
    applied: bool
    """Whether the event sink and the threshold worker have passed the control record."""
    waiting: dict[str, list[int]]
    left: dict[str, int]
    """Covered rows that are still in Postgres, by table."""
    remains: list[Remainder]


async def receipts(services: PurgeServices, tenant: str | None = None) -> list[PurgeReceipt]:
    """Return a receipt of each purged subject, of a tenant or of all, the oldest first.

    Raises `BrokerUnreachable`, `TopicsMissing`, `PostgresUnreachable` and `NotMigrated`.
    """
    epoch = await read_epoch(services.kafka)
    names = [EVENTS.name, DEAD_LETTERS.name, NOTICES.name]
    states = await describe_topics(services.kafka, names)
    settings = await topic_settings(services.kafka, names)
    reached = await worker_offsets(services, epoch)
    async with reading_postgres(services.postgres) as connection:
        stored = await read_purges(connection, None if tenant is None else [tenant])
        found = []
        for each in stored:
            waiting = _waiting(reached, epoch, each)
            field, value = subject_name(each.purge)
            found.append(
                PurgeReceipt(
                    id=each.purge.id,
                    tenant=each.purge.tenant,
                    subject={field: value},
                    at=each.purge.at,
                    rows=await purge_counts(connection, each.purge),
                    applied=not waiting,
                    waiting=waiting,
                    left=await remaining_rows(connection, each.purge),
                    remains=remains(each, epoch, states, settings, services.marks_s),
                )
            )
    return found


def _waiting(
    reached: Mapping[str, Mapping[int, int]], epoch: Epoch, stored: StoredPurge
) -> dict[str, list[int]]:
    """Return the partitions in which a worker has not applied a purge yet, by group."""
    if stored.epoch not in (None, epoch.number):
        return {}  # of an earlier log
    unseen = [n for n in range(epoch.partitions) if n not in stored.offsets]
    waiting = not_passed(reached, stored.offsets)
    if unseen:  # the sink notes the offset when it comes to the record
        waiting = {**waiting, EPISODES_GROUP: unseen}
    return waiting


def remains(
    stored: StoredPurge,
    epoch: Epoch,
    states: Mapping[str, TopicState],
    settings: Mapping[str, Mapping[str, str]],
    marks_s: float = MARKER_RETENTION_S,
) -> list[Remainder]:
    """Return the places that may still have bytes of a purge, with the time by which they go.

    `marks_s`: how long threshold workers keep marks of deleted contexts.
    """
    at = stored.purge.at
    found = []
    for topic in (EVENTS, DEAD_LETTERS, NOTICES):
        state = states.get(topic.name)
        if state is None:
            continue
        holding = [n for n, begin in sorted(state.begin.items()) if begin < state.end[n]]
        if topic is EVENTS:
            same = stored.epoch == epoch.number
            # Where the sink has not come to the record, events may have come before it.
            gone = {n for n, offset in stored.offsets.items() if same and offset < state.begin[n]}
            holding = [n for n in holding if n not in gone]
        if holding:
            until = _until(at, settings.get(topic.name, {}))
            found.append(Remainder(topic.name, _WHAT[topic.name], until, holding))
    marks = Remainder(
        "Redis",
        "paths of deleted contexts, as names of deletion marks, which the threshold worker deletes "
        f"{_span(marks_s)} after it has applied the purge, or has started",
        at + round(marks_s * 1000),
    )
    return [*found, marks, *_ELSEWHERE]


def _until(at: int, settings: Mapping[str, str]) -> int | None:
    """Return when retention has deleted the records of a time; None without retention by time."""
    kept = int(settings.get("retention.ms", -1))
    segment = int(settings.get("segment.ms", _BROKER_SEGMENT_MS))
    return None if kept < 0 else at + kept + segment


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


_WHAT = {
    EVENTS.name: "the events themselves, until retention deletes their segments",
    DEAD_LETTERS.name: "events that an agent refused, if there were any",
    NOTICES.name: "paths of contexts with the subject in them, if there were notices",
}
_ELSEWHERE = [
    Remainder(
        f"{THRESHOLDS.name}, {CHANGELOG.name}",
        "contexts and their deletion marks until the broker compacts the topics, which it does "
        "when it is due by segment.ms and min.cleanable.dirty.ratio; paths as keys of tombstones "
        "for delete.retention.ms more",
    ),
    Remainder(
        "thresholds of contexts that several users share",
        "what the subject taught them, as counts and weights; `headstart rebuild` learns them "
        "again without it, from the part of the log that is left",
    ),
    Remainder(
        f"{DECISIONS.name}, {MODELS.name}",
        "shared models of next calls, learned from hashes: `headstart predict reset`",
    ),
    Remainder(
        "files of Postgres",
        "deleted rows: `headstart memory purge --vacuum` frees their space, in which the bytes "
        "stay until other rows take it; with `--vacuum-full` they are gone at once; statistics "
        "until the next ANALYZE, write-ahead log and backups by their own retention",
    ),
    Remainder(
        "executors' spools",
        "events that were not sent yet: the sink leaves them out when they arrive; contexts with "
        "the subject in their path learn from them again; `headstart spool purge` on each host "
        "with executors removes a user's",
    ),
    Remainder(
        "exports, dumps and snapshots",
        "files written before the purge: delete them",
    ),
    Remainder(COMMANDS.name, "overrides that operators set on the subject's contexts"),
    Remainder(
        f"{CHANGELOG.name}, and the threshold workers' data directories",
        "the purge itself, with the name of its subject, so that it is not applied twice; starts "
        "of guesses that have no completion yet, for an hour: ids of their run, and the user's",
    ),
]


def as_json(receipt: PurgeReceipt) -> dict[str, Any]:
    """Return a receipt as JSON has it."""
    found: dict[str, Any] = msgspec.to_builtins(receipt)
    return found
