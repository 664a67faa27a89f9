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
from topics.epoch import EpochUnreadable, PartitionsChanged, read_epoch
from topics.kafka.admin import TopicState, describe_topics, topic_settings
from topics.kafka.reader import LogTruncated
from topics.kafka.transactions import OpenTransaction, long_open, open_transactions

_CREATE: Final = "headstart topics create"
_AT_LEAST: Final = ("retention.ms", "max.message.bytes", "min.compaction.lag.ms")
"""Settings whose values may be larger than wanted."""


class LogTopics(NamedTuple):
    """The topics as the broker described them, and the log's epoch."""

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
    found = [Finding("kafka", OK, f"{kafka} answers")]
    found += check_topics(states, settings)
    found += await _transactions(kafka, states)
    found += dead_letters(states)
    if EVENTS.name in states and EPOCHS.name in states:
        finding, epoch = await _epoch(kafka)
        return [*found, finding], None if epoch is None else LogTopics(states, epoch)
    return found, None


def check_topics(
    states: Mapping[str, TopicState], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Yield errors of topics, or one finding that all are correct. Pure."""
    wrong = []
    if missing := [topic.name for topic in TOPICS if topic.name not in states]:
        wrong.append(Finding("topics", ERROR, f"missing: {', '.join(missing)}", _CREATE))
    events = states.get(EVENTS.name)
    for topic in TOPICS:
        if topic.name not in states:
            continue
        state = states[topic.name]
        expected = events.partitions if events and topic.partitioned else 1
        if (events or not topic.partitioned) and state.partitions != expected:
            wrong.append(_partitions(topic, state.partitions, expected))
        wrong += _settings(topic, settings.get(topic.name, {}))
    yield from wrong or [Finding("topics", OK, f"all {len(TOPICS)} as they should be")]


def dead_letters(states: Mapping[str, TopicState]) -> Iterator[Finding]:
    """Yield the number of waiting dead letters, if there are any. Pure."""
    if waiting := waiting_letters(states):
        what = f"about {waiting:,} wait to be replayed or dropped"
        yield Finding("dead letters", WARNING, what, "headstart dead-letters list")


def _partitions(topic: Topic, found: int, expected: int) -> Finding:
    should = f"as many as {EVENTS.name}: {expected}" if topic.partitioned else "one"
    return Finding(
        "topics",
        ERROR,
        f"{topic.name} has {found} partitions and must have {should}",
        "do not delete it; see docs/how-to/partitions.md",
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


async def _epoch(kafka: str) -> tuple[Finding, int | None]:
    try:
        epoch = await read_epoch(kafka)
    except PartitionsChanged as error:
        what, _, remedy = str(error).partition(": keys would change owners. ")
        return Finding("topics", ERROR, f"{what}: keys would change owners", remedy), None
    except EpochUnreadable as error:
        what, _, remedy = str(error).partition(". Nothing was changed. ")
        return Finding("topics", ERROR, what, remedy), None
    except Exception as error:
        return Finding(
            "topics", ERROR, f"no log epoch can be read: {short_error(error)}", _CREATE
        ), None
    what = f"{epoch.number}, created for {epoch.partitions} partitions"
    return Finding("epoch", OK, what), epoch.number
