"""The broker as a model: logs, record batches whole or not at all, compaction, groups."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from processing.records.batch import Headers, RecordBatch
from topics.catalogue import CHANGELOG, DEAD_LETTERS, EVENTS, THRESHOLDS

if TYPE_CHECKING:
    from tests.simulation.process import Process

PARTITIONS: Final = 2
COMPACTION_LAG_S: Final = 120.0
"""How long compaction leaves a record alone, in the world's seconds: four rounds of tidying."""
RETENTION_S: Final = 60.0
"""The youngest that retention takes: longer than the lag of a worker that is late unknowingly."""
SESSION_S: Final = 10.0
HEARTBEAT_S: Final = 2.0


Joined = tuple[int, set[int]]
"""The generation, and the partitions assigned."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction in one partition. `committed`: None while it is open."""

    first: int
    committed: bool | None = None


@dataclass(slots=True)
class Record:
    """One record of a log. `at`: the world's seconds."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    at: float
    headers: Headers = ()
    transaction: OpenTransaction | None = None

    @property
    def counts(self) -> bool:
        """Return whether it is of no transaction, or of one that was committed."""
        return self.transaction is None or bool(self.transaction.committed)


@dataclass
class Log:
    """One partition of a topic. `lost`: how many records went with the log's beginning."""

    records: list[Record] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    removed: list[Record] = field(default_factory=list)
    transactions: list[OpenTransaction] = field(default_factory=list)

    @property
    def stable(self) -> int:
        """Return the last stable offset, where readers stop."""
        return self.settled

    @property
    def settled(self) -> int:
        """Return where the first transaction begins that is open, or the end."""
        return min((t.first for t in self.transactions if t.committed is None), default=self.end)

    def shows(self, record: Record) -> bool:
        """Return whether readers are given a record that is stable."""
        return record.counts

    def append(
        self,
        rows: Iterable[tuple[bytes | None, bytes | None]],
        timestamp: int,
        at: float,
        headers: Headers = (),
    ) -> tuple[int, int]:
        """Append one record batch; return its first and last offset."""
        first = self.end
        for key, value in rows:
            self.records.append(Record(self.end, key, value, timestamp, at, headers))
            self.end += 1
        return first, self.end - 1

    def read(self, begin: int, end: int) -> list[Record]:
        """Return the records from offset `begin` up to, not including, `end`."""
        return [each for each in self.sent(begin, end) if self.shows(each)]

    def sent(self, begin: int, end: int) -> list[Record]:
        """Return what a broker sends of these offsets: also what was aborted."""
        low = bisect_left(self.records, begin, key=_offset)
        high = bisect_left(self.records, min(end, self.stable), key=_offset)
        return self.records[low:high]

    def compact(self, before: float) -> None:
        """Keep the last record of each key among those older than `before`."""
        old = [record for record in self.records if record.at < before]
        last = {record.key: record.offset for record in old}
        self.records = [
            record
            for record in self.records
            if record.at >= before
            # The batch's last record stays as a batch header does: offsets are never reused.
            or last[record.key] == record.offset
        ]

    def older(self, before: float) -> int:
        """Return the offset of the first record that is not older than `before`."""
        return next((record.offset for record in self.records if record.at >= before), self.end)

    def retain(self, begin: int) -> None:
        """Take the records below `begin` from the log."""
        cut = bisect_left(self.records, begin, key=_offset)
        self.removed += self.records[:cut]
        self.records = self.records[cut:]
        self.begin = max(self.begin, begin)

    @property
    def everything(self) -> list[Record]:
        """Every record ever appended that counts by now, retention or not."""
        settled = self.settled
        every = [*self.removed, *self.records]
        return [each for each in every if each.counts and each.offset < settled]


def _offset(record: Record) -> int:
    return record.offset


class Broker:
    """Every topic of one life of the log."""

    def __init__(self, chance: random.Random, *, kafka: bool) -> None:
        self.kafka = kafka
        self._chance = chance
        self.logs: dict[str, list[Log]] = {
            topic.name: [Log() for _ in range(PARTITIONS if topic.partitioned else 1)]
            for topic in (EVENTS, CHANGELOG, THRESHOLDS, DEAD_LETTERS)
        }
        self.groups = {name: Group(chance) for name in ("thresholds", "episodes")}
        self.holes = 0
        """How many fetches will show a later record before an earlier one."""
        self.readers: list[asyncio.Event] = []

    def append(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes | None, bytes | None]],
        timestamp: int,
        at: float,
        headers: Headers = (),
    ) -> tuple[int, int]:
        """Append one record batch, whole; every record has `headers`."""
        log = self.logs[topic][partition]
        if self.kafka and self._chance.random() < 0.05:
            log.end += 1  # a transaction's marker
        placed = log.append(rows, timestamp, at, headers)
        if topic == EVENTS.name:
            for reader in self.readers:
                reader.set()
        return placed

    def fetch(self, partition: int, begin: int) -> RecordBatch | None:
        """Return some records of the log of events from `begin` on; None where there are none."""
        log = self.logs[EVENTS.name][partition]
        begin = max(begin, log.begin)
        records = log.sent(begin, log.stable)[: self._chance.randint(1, 6)]
        if not records:
            # Markers alone are a fetch too.
            return self._holes(partition, begin, log.stable) if log.transactions else None
        end = records[-1].offset + 1
        records = [record for record in records if log.shows(record)]
        if self.holes and len(records) > 1:
            self.holes -= 1
            del records[self._chance.randrange(len(records) - 1)]
        batch = batch_of(EVENTS.name, partition, begin, end, records)
        batch.lag = log.stable - end
        return batch

    @staticmethod
    def _holes(partition: int, begin: int, end: int) -> RecordBatch | None:
        return batch_of(EVENTS.name, partition, begin, end, ()) if end > begin else None


def batch_of(
    topic: str, partition: int, begin: int, end: int, records: Sequence[Record]
) -> RecordBatch:
    """Return records as one fetch of all that they have."""
    return RecordBatch(
        topic, partition, begin, end,
        [record.offset for record in records],
        [record.timestamp for record in records],
        [record.key for record in records],
        [record.value for record in records],
        {record.offset: record.headers for record in records if record.headers},
    )  # fmt: skip


class Group:
    """One consumer group: its members and their partitions, by generation."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.generation = 0
        self.preparing = False
        self.members: dict[str, Process] = {}
        self.committed: dict[int, int] = {}
        self._joining: dict[Process, asyncio.Future[Joined | None]] = {}

    async def join(self, process: Process) -> tuple[int, set[int]]:
        """Wait until all members have joined; return the generation and what is assigned."""
        while True:
            joined: asyncio.Future[Joined | None] = process.world.loop.create_future()
            self.members[process.name] = process  # static membership: the name decides
            self._joining[process] = joined
            self.rebalance()
            self._share_out()
            if (answer := await joined) is not None:
                return answer

    def leave(self, process: Process) -> None:
        """Remove a member that stopped, or sent no heartbeat for its session."""
        if self.members.get(process.name) is process:
            del self.members[process.name]
            if self.members:
                self.rebalance()
        if (joining := self._joining.pop(process, None)) is not None:
            joining.set_result(None)  # it has to ask again
        self._share_out()

    def rebalance(self) -> None:
        """Have every member join again; each is notified with its next heartbeat."""
        self.preparing = True
        for member in self.members.values():
            if member not in self._joining:
                member.world.later(self._chance.uniform(0, HEARTBEAT_S), member.on_heartbeat)

    def holds(self, process: Process, generation: int) -> bool:
        """Return whether a process is a member in this generation, with no pending notification."""
        member = self.members.get(process.name) is process
        return member and not self.preparing and generation == self.generation

    def commit(self, process: Process, generation: int, offsets: dict[int, int]) -> None:
        """Keep committed offsets, unless the process is fenced."""
        if self.members.get(process.name) is process and generation == self.generation:
            self.committed.update(offsets)

    def _share_out(self) -> None:
        members = list(self.members.values())
        if not members or any(member not in self._joining for member in members):
            return
        self.generation += 1
        self.preparing = False
        first = self._chance.randrange(len(members))
        for number, member in enumerate(members):
            mine = {
                partition
                for partition in range(PARTITIONS)
                if (partition + first) % len(members) == number
            }
            self._joining.pop(member).set_result((self.generation, mine))
