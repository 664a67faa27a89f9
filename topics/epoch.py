"""The log epoch: which life of the log an offset belongs to.

A broker can forget, or a topic be recreated; offsets then begin again at 0. The epoch is minted
when the topics are created, kept in a topic of that broker, and carried by every applied offset,
row, sink offset and published version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import EPOCHS, EVENTS
from topics.kafka.admin import (
    TopicsMissing,
    create_topics,
    describe_topics,
    recreate_mismatched,
)
from topics.kafka.fetch_patch import ISOLATION

_LOG = logging.getLogger("headstart.epoch")


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One life of the log: its number, and the partition count that belongs to it.

    `volatile`: the broker keeps the log in memory, so its end is the log's. Clients read this
    (`headstart.shipping.volatile_broker`), and then keep what was acknowledged until it is taken
    in.
    """

    number: int
    partitions: int
    volatile: bool = False


class PartitionsChanged(RuntimeError):
    """`headstart.events` no longer has the partitions its epoch was minted for."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(
            f"{EVENTS.name} has {found} partitions, its log epoch was minted for {expected}: keys "
            "would change owners, so workers do not start. Nothing is lost, and nothing has to be "
            "deleted yet: `headstart thresholds export FILE` still reads what was learned; then "
            "see docs/operations.md, 'Change the number of partitions'"
        )


class PartitionsDiffer(RuntimeError):
    """`headstart.events` exists, and has not the number of partitions that was asked for."""

    def __init__(self, found: int, wanted: int) -> None:
        super().__init__(
            f"{EVENTS.name} has {found} partitions, and {wanted} were asked for: existing topics "
            f"keep their number. Use --partitions {found}, or leave it out; to change the "
            "number, see docs/operations.md, 'Change the number of partitions'. Nothing was changed"
        )


class EpochUnreadable(RuntimeError):
    """`headstart.epochs` has records, and none of them is a log epoch."""

    def __init__(self, end: int) -> None:
        super().__init__(
            f"none of the records of {EPOCHS.name} up to offset {end} is a log epoch, so a log "
            "that was partly taken in cannot be told from a new one. Nothing was changed. Produce "
            f"the epoch to {EPOCHS.name} again, with the key `epoch` and the value "
            '{"number": N, "partitions": P}: N is the `epoch` in `headstart thresholds list '
            f"--json`, P the number of partitions of {EVENTS.name}"
        )


async def read_epoch(kafka: str) -> Epoch:
    """Return the broker's log epoch.

    Raises `BrokerUnreachable`, `TopicsMissing`, `PartitionsChanged` and `EpochUnreadable`.
    """
    epoch, found = await read_minted_epoch(kafka)
    if found != epoch.partitions:
        raise PartitionsChanged(epoch.partitions, found)
    return epoch


async def read_minted_epoch(kafka: str) -> tuple[Epoch, int]:
    """Return the log epoch as it was minted, and how many partitions the log has now.

    For what reads only what was learned, which stays where it was. Raises `BrokerUnreachable` and
    `TopicsMissing`.
    """
    states = await describe_topics(kafka, [EPOCHS.name, EVENTS.name])
    missing = {EPOCHS.name, EVENTS.name} - states.keys()
    epoch = None if missing else await _last_record(kafka, states[EPOCHS.name].end[0])
    if missing or epoch is None:
        raise TopicsMissing(kafka, missing or {EPOCHS.name})
    return epoch, states[EVENTS.name].partitions


async def _last_record(kafka: str, end: int) -> Epoch | None:
    """Read the topic of epochs to its end; the last record counts, None where there is none.

    Raises `EpochUnreadable` where there are records, and none of them is an epoch.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, isolation_level=ISOLATION
    )
    tp = TopicPartition(EPOCHS.name, 0)
    last = None
    await consumer.start()
    try:
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(tp, timeout_ms=1000)).values():
                last = next(filter(None, map(_epoch_in, reversed(records))), last)
    finally:
        await consumer.stop()
    if end > 0 and last is None:
        raise EpochUnreadable(end)
    return last


def _epoch_in(record: Any) -> Epoch | None:
    """Return the epoch in a record; None, with a warning, of one that is none."""
    try:
        return msgspec.json.decode(record.value or b"", type=Epoch)
    except ValueError:
        _LOG.warning(
            "%s: the record at offset %d is no log epoch; it is skipped",
            EPOCHS.name, record.offset,
        )  # fmt: skip
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
    """Create missing topics and mint a log epoch where the log is new.

    `known`: epochs seen elsewhere (Redis, Postgres); the new one is larger than each, and at least
    the Unix time in seconds, so that it also exceeds what only a worker's local store remembers.
    `volatile`: the log ends with the broker's process; topics of a log without an epoch that have
    another number of partitions are created anew, as a client's request may have created them.
    `exact`: raise `PartitionsDiffer` where events has another number of partitions; else its number
    is the one that counts. Also raises `PartitionsChanged`, `EpochUnreadable` and
    `BrokerUnreachable`.
    Returns the names created and the epoch in force.
    """
    states = await describe_topics(kafka, [EPOCHS.name, EVENTS.name])
    # None also where a creation was interrupted.
    before = (
        await _last_record(kafka, states[EPOCHS.name].end[0]) if EPOCHS.name in states else None
    )
    settles = volatile and before is None
    there = states[EVENTS.name].partitions if EVENTS.name in states else None
    if there is not None and there != partitions and not settles:
        if exact and (before is None or before.partitions == there):
            raise PartitionsDiffer(there, partitions)
        partitions = there
    created = await create_topics(kafka, partitions, replication)
    if settles:
        await recreate_mismatched(kafka, partitions, replication)
    if before is not None and EVENTS.name not in created and EPOCHS.name not in created:
        epoch = await read_epoch(kafka)
        if volatile and not epoch.volatile:  # minted by `headstart topics create`
            epoch = msgspec.structs.replace(epoch, volatile=True)
            await _write_epoch(kafka, epoch)
        return created, epoch
    epoch = Epoch(max([int(time.time()), *(n + 1 for n in known)]), partitions, volatile)
    await _write_epoch(kafka, epoch)
    return created, epoch


async def _write_epoch(kafka: str, epoch: Epoch) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all")
    try:
        await producer.start()
        await producer.send_and_wait(EPOCHS.name, msgspec.json.encode(epoch), key=b"epoch")
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    finally:
        await producer.stop()
