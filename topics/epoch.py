"""The log epoch: identifies the log that an offset belongs to.

When a broker loses its data or a topic is recreated, offsets begin again at 0. The epoch is created
with the topics, stored in a topic of that broker, and is part of every applied offset, row, sink
offset and published version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from headstart.connections.kafka_connections import new_consumer, new_producer
from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import EPOCHS, EVENTS
from topics.kafka.admin import TopicsMissing, create_topics, partition_counts, recreate_mismatched
from topics.kafka.asking_again import ask_again
from topics.kafka.fetch_patch import ISOLATION
from topics.kafka.topic_states import TopicState, describe_topics

_LOG = logging.getLogger("headstart.epoch")


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A log epoch: its number and partition count.

    `volatile`: the broker keeps the log in memory and loses it when it stops. Clients read this
    (`headstart.shipping.volatile_broker`) and then keep acknowledged events until the workers have
    processed them.
    """

    number: int
    partitions: int
    volatile: bool = False


class Recreation(msgspec.Struct, frozen=True):
    """The log is being recreated: its topics are deleted, and created for the next epoch.

    `before`: the epoch that ends; `number`: of the next one. `saved`: the folder with what is
    carried over; empty: it is not whole yet, and nothing is deleted.
    """

    id: str
    before: Epoch
    number: int
    saved: str = ""


class _RecreationRecord(msgspec.Struct, frozen=True):
    """The record of a recreation.

    It has no `number` beside it, so that shippers of earlier versions take it for no epoch and
    wait, too.
    """

    recreation: Recreation


class LogInRecreation(RuntimeError):
    """Workers and producers wait, because the log is being recreated."""

    def __init__(self, recreation: Recreation) -> None:
        super().__init__(
            f"the log of epoch {recreation.before.number} is being recreated, and everything waits "
            "for it: if `headstart topics recreate --yes` does not run any more, run it again; it "
            "continues where it ended"
        )
        self.recreation = recreation


class PartitionsChanged(RuntimeError):
    """`headstart.events` has fewer partitions than its epoch."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(
            f"{EVENTS.name} has {found} partitions, its log epoch was created for {expected}: keys "
            "would change owners, so workers do not start. Nothing is lost, and nothing has to be "
            "deleted yet: `headstart thresholds export FILE` still reads what was learned; then "
            "see docs/how-to/partitions.md"
        )


class PartitionsDiffer(RuntimeError):
    """`headstart.events` exists with another partition count than requested."""

    def __init__(self, found: int, wanted: int) -> None:
        super().__init__(
            f"{EVENTS.name} has {found} partitions, and {wanted} were asked for: existing topics "
            f"keep their number. Use --partitions {found}, or leave it out; to change the "
            "number, see docs/how-to/partitions.md. Nothing was changed"
        )


class EpochUnreadable(RuntimeError):
    """`headstart.epochs` has records, but none is a valid log epoch."""

    def __init__(self, end: int) -> None:
        super().__init__(
            f"none of the records of {EPOCHS.name} up to offset {end} is a log epoch, so a partly "
            "processed log cannot be distinguished from a new one. Nothing was changed. Produce "
            f"the epoch to {EPOCHS.name} again, with the key `epoch` and the value "
            '{"number": N, "partitions": P}: N is the `epoch` in `headstart thresholds list '
            f"--json`, P the number of partitions of {EVENTS.name}"
        )


async def read_epoch(kafka: str) -> Epoch:
    """Return the broker's log epoch. Partitions that the log was given later are not of it.

    Raises `BrokerUnreachable`, `TopicsMissing`, `PartitionsChanged`, `EpochUnreadable` and
    `LogInRecreation`.
    """
    epoch, found = await read_minted_epoch(kafka)
    if found < epoch.partitions:
        raise PartitionsChanged(epoch.partitions, found)
    return epoch


async def read_minted_epoch(kafka: str) -> tuple[Epoch, int]:
    """Return the stored log epoch, and how many partitions the log has now.

    For commands that only read learned state, which does not move. Raises `BrokerUnreachable`,
    `TopicsMissing`, `EpochUnreadable` and `LogInRecreation`.
    """
    # Not `describe_topics` of both: that reads the events, which not every worker may.
    counts = await partition_counts(kafka, [EPOCHS.name, EVENTS.name])
    missing = {EPOCHS.name, EVENTS.name} - counts.keys()
    # Also if topics are missing: while the log is recreated, others are.
    wanted = [EPOCHS.name] if EPOCHS.name in counts else []
    states = await describe_topics(kafka, wanted)
    epoch = await _epoch_of(kafka, states)
    if missing or epoch is None:
        raise TopicsMissing(kafka, missing or {EPOCHS.name})
    return epoch, counts[EVENTS.name]


async def read_log_state(kafka: str) -> Epoch | Recreation:
    """Return the log epoch, or the recreation of the log that has begun and not ended.

    Raises `BrokerUnreachable`, `TopicsMissing` and `EpochUnreadable`.
    """
    states = await describe_topics(kafka, [EPOCHS.name])
    found = await _last_record(kafka, states[EPOCHS.name].end[0]) if states else None
    if found is None:
        raise TopicsMissing(kafka, [EPOCHS.name])
    return found


async def _epoch_of(kafka: str, states: Mapping[str, TopicState]) -> Epoch | None:
    """Return the epoch, None if there is none yet. Raises `LogInRecreation`."""
    if EPOCHS.name not in states:
        return None
    found = await _last_record(kafka, states[EPOCHS.name].end[0])
    if isinstance(found, Recreation):
        raise LogInRecreation(found)
    return found


async def _last_record(kafka: str, end: int) -> Epoch | Recreation | None:
    """Return the last valid record of the topic, None if the topic is empty.

    Raises `EpochUnreadable` if there are records but no valid one, and `BrokerUnreachable`.
    """
    return await ask_again(kafka, lambda: _read_last_record(kafka, end))


async def _read_last_record(kafka: str, end: int) -> Epoch | Recreation | None:
    consumer = new_consumer(kafka, enable_auto_commit=False, isolation_level=ISOLATION)
    tp = TopicPartition(EPOCHS.name, 0)
    last: Epoch | Recreation | None = None
    try:
        await consumer.start()
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(tp, timeout_ms=1000)).values():
                valid = [each for record in records if (each := _epoch_in(record))]
                last = valid[-1] if valid else last
    finally:
        await consumer.stop()
    if end > 0 and last is None:
        raise EpochUnreadable(end)
    return last


def _epoch_in(record: Any) -> Epoch | Recreation | None:
    """Return what a record holds; log a warning and return None if it is invalid."""
    value = record.value or b""
    with suppress(ValueError):
        return msgspec.json.decode(value, type=Epoch)
    with suppress(ValueError):
        return msgspec.json.decode(value, type=_RecreationRecord).recreation
    _LOG.warning("%s: skipped the record at offset %d: not a log epoch", EPOCHS.name, record.offset)
    return None


async def ensure_topics(
    kafka: str,
    *,
    partitions: int,
    replication: int = 1,
    known: Iterable[int] = (),
    volatile: bool = False,
    exact: bool = False,
) -> tuple[list[str], Epoch]:
    """Create missing topics, and a log epoch if the log is new; return both.

    `known`: epochs in Redis and Postgres. The new epoch is larger than each, and at least the Unix
    time in seconds, so that it also exceeds one that only a worker's local store holds. `volatile`:
    the log ends with the broker's process; if it has no epoch yet, topics with another partition
    count are recreated, because a client's request may have created them. `exact`: raise
    `PartitionsDiffer` if `headstart.events` has another partition count; by default the existing
    count is kept. Also raises `PartitionsChanged`, `EpochUnreadable`, `LogInRecreation` and
    `BrokerUnreachable`.
    """
    states = await describe_topics(kafka, [EPOCHS.name, EVENTS.name])
    before = await _epoch_of(kafka, states)  # also None after an interrupted creation
    may_recreate = volatile and before is None
    existing = states[EVENTS.name].partitions if EVENTS.name in states else None
    if existing is not None and before is not None:
        existing = min(existing, before.partitions)
    if existing is not None and existing != partitions and not may_recreate:
        if exact and (before is None or before.partitions == existing):
            raise PartitionsDiffer(existing, partitions)
        partitions = existing
    created = await create_topics(kafka, partitions, replication)
    if may_recreate:
        await recreate_mismatched(kafka, partitions, replication)
    if before is not None and EVENTS.name not in created and EPOCHS.name not in created:
        epoch = await read_epoch(kafka)
        if volatile and not epoch.volatile:  # created by `headstart topics create`
            epoch = msgspec.structs.replace(epoch, volatile=True)
            await write_log_state(kafka, epoch)
        return created, epoch
    epoch = Epoch(next_number(known), partitions, volatile)
    await write_log_state(kafka, epoch)
    return created, epoch


def next_number(known: Iterable[int]) -> int:
    """Return the number of a new epoch: larger than those known, and at least the Unix time, s."""
    return max([int(time.time()), *(n + 1 for n in known)])


async def write_log_state(kafka: str, state: Epoch | Recreation) -> None:
    """Write the log epoch, or that the log is being recreated. Raises `BrokerUnreachable`."""
    record = _RecreationRecord(state) if isinstance(state, Recreation) else state
    producer = new_producer(kafka, acks="all")
    try:
        await producer.start()
        await producer.send_and_wait(EPOCHS.name, msgspec.json.encode(record), key=b"epoch")
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    finally:
        await producer.stop()
