"""Checks the broker, and its topics against the catalogue."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from console.inspection.doctor.findings import ERROR, OK, WARNING, Finding
from console.inspection.error_text import short_error, unreachable_why
from console.inspection.lag import waiting_letters
from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import EPOCHS, EVENTS, TOPICS, Topic
from topics.dead_letters.log import lost_records
from topics.epoch import (
    Epoch,
    EpochUnreadable,
    LogInRecreation,
    PartitionsChanged,
    read_epoch,
)
from topics.kafka.admin import IN_SYNC, TopicsMissing, in_sync, topic_settings
from topics.kafka.reader import LogTruncated
from topics.kafka.topic_states import TopicState, describe_topics
from topics.kafka.transactions import OpenTransaction, long_open, open_transactions
from topics.used_partitions import HOW, unread_partitions, used_partitions

_RAISE: Final = (
    "no row and no episode has them; restore them from a backup if you have one, and raise the "
    "topic's retention.ms above the longest time that workers are down"
)
_CREATE: Final = "headstart topics create"
_AT_LEAST: Final = ("retention.ms", "max.message.bytes", "min.compaction.lag.ms")
"""Settings whose values may be larger than wanted."""


class LogTopics(NamedTuple):
    """The topics as the broker described them, their unread partitions left out, and the epoch."""

    states: Mapping[str, TopicState]
    epoch: int


async def check_broker(kafka: str) -> tuple[list[Finding], LogTopics | None]:
    """Return the findings on the broker and its topics, and the log if its epoch can be read."""
    if why := await unreachable_why(kafka):
        remedy = "start it (`headstart up`), or name yours: --kafka or HEADSTART_KAFKA"
        return [Finding("kafka", ERROR, f"{kafka}: {why}", remedy)], None
    try:
        states = await describe_topics(kafka, [topic.name for topic in TOPICS])
        settings = await topic_settings(kafka, states)
    except BrokerUnreachable as error:
        remedy = (
            error.trouble.remedy if error.trouble else "check that a Kafka broker listens there"
        )
        return [Finding("kafka", ERROR, f"{kafka}: {short_error(error)}", remedy)], None
    minted, epoch = [], None
    if EVENTS.name in states and EPOCHS.name in states:
        finding, epoch = await _epoch(kafka)
        minted = [finding]
    found = [Finding("kafka", OK, f"{kafka} answers")]
    found += check_topics(states, settings, epoch)
    found += await _transactions(kafka, states)
    found += [*dead_letters(states), *await _lost(kafka), *minted]
    if epoch is None:
        return found, None
    return found, LogTopics(used_partitions(states, epoch.partitions), epoch.number)


def check_topics(
    states: Mapping[str, TopicState],
    settings: Mapping[str, Mapping[str, str]],
    epoch: Epoch | None = None,
) -> Iterator[Finding]:
    """Yield errors of topics, or one finding that all are correct. Pure.

    `epoch`: whose partition count the topics need; default: that of `headstart.events`.
    """
    wrong, events = [], states.get(EVENTS.name)
    count = events.partitions if events else None
    if epoch is not None:
        count = epoch.partitions
        for unread in unread_partitions(states, epoch.partitions):
            wrong.append(Finding("topics", ERROR if unread.records else WARNING, str(unread), HOW))
        states = used_partitions(states, epoch.partitions)
    if missing := [topic.name for topic in TOPICS if topic.name not in states]:
        wrong.append(Finding("topics", ERROR, f"missing: {', '.join(missing)}", _CREATE))
    for topic in TOPICS:
        if topic.name not in states:
            continue
        state = states[topic.name]
        expected = count if topic.partitioned else 1
        if expected is not None and state.partitions != expected:
            wrong.append(_partitions(topic, state.partitions, expected))
        wrong += _settings(topic, settings.get(topic.name, {}))
    wrong += _copies(states, settings)
    yield from wrong or [Finding("topics", OK, f"all {len(TOPICS)} as they should be")]


def dead_letters(states: Mapping[str, TopicState]) -> Iterator[Finding]:
    """Yield the number of waiting dead letters, if there are any. Pure."""
    if waiting := waiting_letters(states):
        what = f"about {waiting:,} wait to be replayed or dropped"
        yield Finding("dead letters", WARNING, what, "headstart dead-letters list")


async def _lost(kafka: str) -> list[Finding]:
    """Return what retention deleted before it was read, until its dead letter is dropped."""
    try:
        found = await lost_records(kafka)
    except (BrokerUnreachable, TopicsMissing, LogTruncated):  # other checks report it
        return []
    return [
        Finding("retention", ERROR, f"{each.source.topic}, partition {each.source.partition}: "
                f"{each.reason}", f"{_RAISE}; then headstart dead-letters drop {each.at}")
        for each in found
        if each.source is not None
    ]  # fmt: skip


def _partitions(topic: Topic, found: int, expected: int) -> Finding:
    should = f"as many as {EVENTS.name}: {expected}" if topic.partitioned else "one"
    return Finding(
        "topics",
        ERROR,
        f"{topic.name} has {found} partitions and must have {should}",
        "do not delete it; see docs/how-to/partitions.md",
    )


def _copies(
    states: Mapping[str, TopicState], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Yield topics that lose records, or stop, with one broker of several."""
    known = {topic.name: states[topic.name].copies for topic in TOPICS if topic.name in states}
    most = max(known.values(), default=0)
    if few := [name for name, copies in known.items() if 0 < copies < most]:
        what = f"fewer copies than the other topics, which have {most}: {', '.join(few)}"
        yield Finding("topics", WARNING, what, "kafka-reassign-partitions.sh --execute")
    wanted: dict[tuple[str, str], list[str]] = {}
    for name, copies in known.items():
        has = settings.get(name, {}).get(IN_SYNC, "")
        right = in_sync(copies).get(IN_SYNC, "1")
        if copies > 1 and has.isdecimal() and not min(int(right), 2) <= int(has) < copies:
            wanted.setdefault((has, right), []).append(name)
    for (has, right), names in wanted.items():
        lost = int(has) < int(right)
        why = "a record is acknowledged that one broker has" if lost else "none may be away"
        yield Finding(
            "topics",
            WARNING,
            f"{IN_SYNC} is {has}, not {right} ({why}): {', '.join(names)}",
            f"kafka-configs.sh --alter --entity-type topics --entity-name NAME --add-config "
            f"{IN_SYNC}={right}",
        )


def _settings(topic: Topic, found: Mapping[str, str]) -> Iterator[Finding]:
    for name, wanted in topic.configuration().items():
        has = found.get(name)
        if has is None or has == wanted or (name in _AT_LEAST and _more(has, wanted)):
            continue
        grave = name in {"cleanup.policy", "max.message.bytes"}
        what = f"{topic.name}: {name} is {has}, not {wanted}"
        if name == "cleanup.policy" and wanted == "compact":
            what = f"{topic.name} is not compacted: its cleanup.policy is {has}"
        remedy = (
            f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} "
            f"--add-config {name}={wanted}"
        )
        yield Finding("topics", ERROR if grave else WARNING, what, remedy)


def _more(has: str, wanted: str) -> bool:
    return has == "-1" or (wanted != "-1" and int(has) >= int(wanted))


async def _transactions(kafka: str, states: Mapping[str, TopicState]) -> list[Finding]:
    try:
        found = await open_transactions(kafka, states.values())
    except LogTruncated:
        return []  # retention deleted it
    return list(check_transactions(kafka, found, time.time()))


def check_transactions(
    kafka: str, found: Iterable[OpenTransaction], now: float
) -> Iterator[Finding]:
    """Yield transactions open for long, which block readers; `now`: Unix seconds. Pure."""
    for each in long_open(found, now):
        yield Finding(
            "transactions",
            ERROR,
            each.described(now),
            "have its producer commit or abort it; if the producer is gone: kafka-transactions.sh "
            f"--bootstrap-server {kafka} abort --topic {each.topic} --partition "
            f"{each.partition} --start-offset {each.offset}",
        )


async def _epoch(kafka: str) -> tuple[Finding, Epoch | None]:
    try:
        epoch = await read_epoch(kafka)
    except PartitionsChanged as error:
        what, _, remedy = str(error).partition(": keys would change owners. ")
        return Finding("topics", ERROR, f"{what}: keys would change owners", remedy), None
    except LogInRecreation as error:
        what, _, remedy = str(error).partition(": ")
        return Finding("topics", ERROR, what, remedy), None
    except EpochUnreadable as error:
        what, _, remedy = str(error).partition(". Nothing was changed. ")
        return Finding("topics", ERROR, what, remedy), None
    except Exception as error:
        return Finding(
            "topics", ERROR, f"no log epoch can be read: {short_error(error)}", _CREATE
        ), None
    what = f"{epoch.number}, created for {epoch.partitions} partitions"
    return Finding("epoch", OK, what), epoch
