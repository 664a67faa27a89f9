"""Producers that write transactions: what is in them counts from the marker on, or never.

Their records stand among everybody's. Nothing behind the first record of an open transaction can
be read, whichever producer wrote it; a marker takes an offset and is no record.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from agents.thresholds.partition import OwnedPartition
from headstart.keys import event_key
from processing.records.partitioner import partition_for
from tests.simulation.broker import PARTITIONS, Log, OpenTransaction
from tests.simulation.faults import LAST_FAULT_AT, Fault, Schedule, Transact
from tests.simulation.traffic import Event, foreign_event, stamped
from tests.simulation.world import World
from topics.catalogue import EVENTS

REMAINDERS: Final = (0, 1)
"""Remainders by 7 of the seeds in whose worlds there are transactions, on Apache Kafka."""


def transacting(drawn: Schedule) -> Schedule:
    """Add transactions, by a chance of its own: other seeds stay as they are."""
    if not drawn.kafka or drawn.seed % 7 not in REMAINDERS:
        return drawn
    return with_transactions(drawn)


def with_transactions(drawn: Schedule) -> Schedule:
    """Add transactions: short and long, committed and aborted, several at a time."""
    chance = random.Random(f"{drawn.seed} transacts")
    more: list[Fault] = [
        Transact(int(chance.random() * LAST_FAULT_AT), chance.randint(1, 4),
                 chance.choice([0.5, 5.0, 40.0]), chance.random() < 0.5)
        for _ in range(chance.randint(1, 5))
    ]  # fmt: skip
    return replace(drawn, kafka=True, faults=drawn.faults + tuple(more))


def transact(world: World, fault: Transact) -> None:
    """Begin a transaction; its records come bit by bit, and a marker in each of its partitions."""
    if not world.recreating:
        Producer(world, fault)


class Producer:
    """One transactional producer with one transaction. It has no process, and never fails."""

    def __init__(self, world: World, fault: Transact) -> None:
        self._world, self._commits = world, fault.commits
        self._logs = world.broker.logs[EVENTS.name]
        self._open: dict[int, OpenTransaction] = {}
        self._held: dict[int, list[tuple[Event | None, bytes]]] = {}
        world.transacting += 1
        for _ in range(fault.records):
            world.later(world.chance.uniform(0, fault.seconds), self._append)
        world.later(fault.seconds, self._end)

    def _append(self) -> None:
        world = self._world
        if world.recreating or world.broker.logs[EVENTS.name] is not self._logs:
            return  # it is drained, or gone
        event = stamped(foreign_event(world.chance), world.wall_ms())
        partition, value = partition_for(*event.key, PARTITIONS), event.value
        known: Event | None = event
        if world.chance.random() < 0.25:
            known, value = None, b"no JSON in a transaction %d" % world.chance.getrandbits(32)
        log = self._logs[partition]
        opened = self._open.get(partition)
        if opened is None:
            opened = self._open[partition] = OpenTransaction(log.end)
            log.transactions.append(opened)
        log.append([(event_key(*event.key), value)], world.wall_ms(), world.loop.now)
        log.records[-1].transaction = opened
        self._held.setdefault(partition, []).append((known, value))
        self._wake()

    def _end(self) -> None:
        world = self._world
        world.transacting += len(self._open) - 1
        for partition in self._open:
            world.later(world.chance.uniform(0, 1.0), self._mark, partition)

    def _mark(self, partition: int) -> None:
        """Append the marker to one partition: from now on its records count, or never will."""
        world, log = self._world, self._logs[partition]
        world.transacting -= 1
        log.end += 1
        self._open[partition].committed = self._commits
        if self._commits:
            for event, value in self._held[partition]:
                if event is None:
                    world.refused += [(group, value) for group in ("thresholds", "episodes")]
                else:
                    world.appended[event.id] = event
        self._wake()

    def _wake(self) -> None:
        for reader in self._world.broker.readers:
            reader.set()


def read_committed() -> Any:
    """Readers skip what was aborted, and do not go past the first open transaction."""
    return patch.multiple(
        Log, shows=lambda _log, _record: True, stable=property(lambda log: log.end)
    )


def holes_count_as_done() -> Any:
    """Offsets without a record that is read count as processed."""
    return patch.object(OwnedPartition, "_pass_holes", lambda _: None)


TRANSACTION_RULES: Sequence[Any] = (read_committed, holes_count_as_done)
