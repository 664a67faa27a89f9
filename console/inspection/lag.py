"""Reads the log's length, each group's progress and the number of dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import AsyncConnection

from sinks.postgres.progress import stored_offsets
from sinks.postgres.queries import estimate_events
from topics.catalogue import (
    COMMANDS,
    DEAD_LETTERS,
    DECISIONS,
    EPISODES_GROUP,
    EPOCHS,
    EVENTS,
    HANDLED,
    HISTORY_GROUP,
    PREDICTIONS_GROUP,
    SPANS_GROUP,
    THRESHOLDS,
    THRESHOLDS_GROUP,
)
from topics.epoch import Epoch, read_epoch
from topics.kafka.admin import TopicsMissing
from topics.kafka.groups import GroupState, committed_offsets, describe_groups
from topics.kafka.topic_states import TopicState, describe_topics
from topics.kafka.transactions import OpenTransaction, open_transactions
from topics.used_partitions import UnreadPartitions, unread_partitions, used_partitions

_TOPICS = (EVENTS, THRESHOLDS, DECISIONS, DEAD_LETTERS, HANDLED, EPOCHS)


@dataclass(frozen=True)
class LogState:
    """The broker's state; `learned`: the offsets committed by the threshold group.

    `modelled`: those committed by the group of shared models. `open`: the oldest open transaction
    per partition; `groups`: the groups whose state the broker returns. `further`: the lag of groups
    that read topics of other systems. `unread`: partitions that the log epoch does not use.
    """

    epoch: int
    topics: Mapping[str, TopicState]
    learned: Mapping[int, int]
    open: Sequence[OpenTransaction] = ()
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    modelled: Mapping[int, int] = field(default_factory=dict)
    further: Sequence[GroupLag] = ()
    unread: Sequence[UnreadPartitions] = ()

    @property
    def records(self) -> int:
        """Records ever written to `headstart.events` in this epoch."""
        return sum(self.topics[EVENTS.name].end.values())

    @property
    def dead_letters(self) -> int:
        """Dead letters on the broker."""
        return _held(self.topics[DEAD_LETTERS.name])

    @property
    def waiting_letters(self) -> int:
        """Approximate number of dead letters neither replayed nor dropped."""
        return waiting_letters(self.topics)

    @property
    def handled(self) -> int:
        """Marks of dead letters that were replayed or dropped."""
        return _held(self.topics[HANDLED.name])


@dataclass(frozen=True)
class SinkProgress:
    """The sinks' offsets by group and partition; `events` is Postgres' estimate."""

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    events: int = 0


@dataclass(frozen=True)
class GroupLag:
    """Records that a group has not yet processed, by partition of its topic."""

    group: str
    topic: str
    lag: Mapping[int, int]

    @property
    def total(self) -> int:
        """The sum over partitions."""
        return sum(self.lag.values())


class Log:
    """Reads the log's state repeatedly; caches the epoch while offsets only grow."""

    def __init__(self, kafka: str, spans_topic: str = "") -> None:
        """`spans_topic`: the topic that the worker `spans` reads, or empty."""
        self._kafka, self._spans_topic = kafka, spans_topic
        self._epoch: Epoch | None = None
        self._end: Mapping[int, int] = {}

    async def ask(self) -> LogState:
        """Return the state.

        Raises `BrokerUnreachable`, `TopicsMissing`, `PartitionsChanged` and, rarely,
        `LogTruncated`: see `open_transactions`.
        """
        names = [topic.name for topic in (*_TOPICS, COMMANDS)]  # for its transactions only
        states = await describe_topics(self._kafka, names)
        if missing := {topic.name for topic in _TOPICS} - states.keys():
            raise TopicsMissing(self._kafka, missing)
        end = states[EVENTS.name].end
        if self._epoch is None or any(end.get(p, 0) < at for p, at in self._end.items()):
            self._epoch = await read_epoch(self._kafka)
        self._end = end
        open_now = await open_transactions(self._kafka, states.values())
        count = self._epoch.partitions
        asked = await ask_groups(
            self._kafka,
            self._epoch.number,
            used_partitions(states, count),
            open_now,
            self._spans_topic,
        )
        return replace(asked, unread=tuple(unread_partitions(states, count)))


async def ask_groups(
    kafka: str,
    epoch: int,
    topics: Mapping[str, TopicState],
    open_now: Sequence[OpenTransaction] = (),
    spans_topic: str = "",
) -> LogState:
    """Ask how far the groups are in the log that `topics` describes, and in `spans_topic`."""
    partitions = topics[EVENTS.name].partitions
    further = {SPANS_GROUP: spans_topic} if spans_topic else {}
    asked = (EPISODES_GROUP, THRESHOLDS_GROUP, HISTORY_GROUP, PREDICTIONS_GROUP, *further)
    tasks = (
        asyncio.create_task(committed_offsets(kafka, THRESHOLDS_GROUP, EVENTS.name, partitions)),
        asyncio.create_task(
            committed_offsets(kafka, PREDICTIONS_GROUP, DECISIONS.name, partitions)
        ),
        asyncio.create_task(describe_groups(kafka, asked)),
        asyncio.create_task(_ask_further(kafka, further)),
    )
    try:
        learned, modelled, groups, lags_there = await asyncio.gather(*tasks)
    except BaseException:
        await asyncio.gather(*tasks, return_exceptions=True)  # so that each closes its client
        raise
    return LogState(epoch, topics, learned, open_now, groups, modelled, lags_there)


async def _ask_further(kafka: str, topics: Mapping[str, str]) -> list[GroupLag]:
    """Ask how far groups are in topics of other systems, by group; an absent one is left out."""
    states = await describe_topics(kafka, topics.values()) if topics else {}
    found = []
    for group, name in topics.items():
        if topic := states.get(name):
            committed = await committed_offsets(kafka, group, name, topic.partitions)
            found.append(GroupLag(group, name, _behind(topic, committed)))
    return found


async def ask_stored(connection: AsyncConnection[Any], epoch: int | None) -> SinkProgress:
    """Return the sinks' progress, without offsets if `epoch` is None.

    Raises psycopg's errors if the schema is missing; see `reporting_schema_errors`.
    """
    offsets = {}
    if epoch is not None:
        for group, topic in ((EPISODES_GROUP, EVENTS), (HISTORY_GROUP, THRESHOLDS)):
            offsets[group] = await stored_offsets(connection, group, topic.name, epoch)
    return SinkProgress(offsets, await estimate_events(connection))


def lags(log: LogState, stored: SinkProgress | None) -> list[GroupLag]:
    """Return the lag of each group whose offsets are known."""
    reached = {
        THRESHOLDS_GROUP: log.learned,
        PREDICTIONS_GROUP: log.modelled,
        **(stored.offsets if stored else {}),
    }
    of = {
        EPISODES_GROUP: EVENTS,
        THRESHOLDS_GROUP: EVENTS,
        HISTORY_GROUP: THRESHOLDS,
        PREDICTIONS_GROUP: DECISIONS,
    }
    return [
        GroupLag(group, topic.name, _behind(log.topics[topic.name], reached[group]))
        for group, topic in of.items()
        if group in reached and topic.name in log.topics
    ] + [*log.further]


def _behind(topic: TopicState, reached: Mapping[int, int]) -> dict[int, int]:
    return {
        partition: max(0, end - max(topic.begin[partition], reached.get(partition, 0)))
        for partition, end in sorted(topic.end.items())
    }


def waiting_letters(topics: Mapping[str, TopicState]) -> int:
    """Return the approximate number of dead letters neither replayed nor dropped. Pure."""
    refused, handled = (
        _held(topics[topic.name]) if topic.name in topics else 0
        for topic in (DEAD_LETTERS, HANDLED)
    )
    return max(0, refused - handled)


def _held(topic: TopicState) -> int:
    return sum(end - topic.begin[partition] for partition, end in topic.end.items())
