"""Under a new log epoch a partition is adopted only from a store that has all of its rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from agents.config import CannotOpenYet
from agents.thresholds.adoption import Adoption, RowsElsewhere, is_whole
from agents.thresholds.clients import Clients
from agents.thresholds.store import ContextStore
from agents.worker import _lock
from processing.records.batch import RecordBatch
from processing.records.partitioner import partition_for
from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    TaskStateRow,
    context_key,
    encode_context,
    encode_partition,
    version,
)
from sinks.connections import RedisUnreachable
from sinks.redis.last_owners import PartitionOwner
from topics.epoch import Epoch

OLD, NEW, PARTITIONS = 7, 8, 4
TYPE_OF = {partition_for("t", f"type-{n}", PARTITIONS): f"type-{n}" for n in range(40)}


def key_in(partition: int) -> bytes:
    """Return the key of a context that belongs to a partition."""
    return context_key("t", f"workflow_type={TYPE_OF[partition]}")


def owner(
    offset: int, worker: str = "a", *, still: bool = True, partitions: int = PARTITIONS
) -> PartitionOwner:
    return PartitionOwner(OLD, offset, partitions, worker, still)


class World:
    """One worker's local store, the changelog of the new log epoch, and Redis."""

    scan_chunks = ContextStore.scan_chunks

    def __init__(self, *, volatile: bool = False) -> None:
        self.rows: dict[int, dict[bytes, bytes]] = {}
        self.changelog: dict[int, list[tuple[bytes, bytes]]] = {n: [] for n in range(PARTITIONS)}
        self.owners: dict[int, PartitionOwner] = {}
        self.away, self.released = False, list[int]()
        self.workers = Path("/nonexistent")
        self.store = self.producer = self
        self.epoch, self.kafka = Epoch(NEW, PARTITIONS, volatile), "kafka"
        self.clients = Clients(topic_state=self._state, read_batches=self._read)

    def holds(self, partition: int, offset: int, epoch: int = OLD) -> None:
        row = encode_context(ContextRow(epoch, offset, 9, 4, 2, 1, 1, "td", (0.5, 0.0)))
        own = encode_partition(TaskStateRow(), epoch, offset)
        self.rows[partition] = {key_in(partition): row, PARTITION_KEY: own}

    def adopt(self, *partitions: int, worker: str = "a") -> None:
        services: Any = self
        adoption = Adoption(services, services, worker, self.workers / f"thresholds-{worker}")
        asyncio.run(adoption.adopt(partitions, same_count=True))

    # The local store.

    def get_row(self, partition: int, key: bytes) -> bytes | None:
        return self.rows.get(partition, {}).get(key)

    def scan(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self.rows.get(partition, {}).items()))

    def write_rows(self, partition: int, rows: Any, _offset: int | None) -> None:
        self.rows[partition].update(rows)

    def partition_path(self, partition: int) -> Path:
        return self.workers / f"contexts-{partition}.db"

    def has_table(self, partition: int) -> bool:
        return partition in self.rows

    def release(self, partition: int) -> None:
        self.released.append(partition)

    # The changelog.

    async def send_rows(self, _topic: str, partition: int, rows: Any) -> tuple[int, int]:
        self.changelog[partition] += rows
        return 0, len(self.changelog[partition]) - 1

    async def _state(self, _kafka: str, _topic: str) -> Any:
        begin = dict.fromkeys(self.changelog, 0)
        return SimpleNamespace(begin=begin, end={n: len(r) for n, r in self.changelog.items()})

    async def _read(
        self, _kafka: str, _topic: str, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> AsyncIterator[RecordBatch]:
        for number in begin:
            keys, values = zip(*self.changelog[number], strict=True) if end[number] else ((), ())
            yield RecordBatch("c", number, 0, end[number], [], [], list(keys), list(values))

    # Redis.

    async def read(self) -> dict[int, PartitionOwner]:
        if self.away:
            raise RedisUnreachable("redis://127.0.0.1:1", OSError("refused"))
        return self.owners

    async def note(self, owners: Mapping[int, PartitionOwner]) -> None:
        if self.away:
            raise RedisUnreachable("redis://127.0.0.1:1", OSError("refused"))
        self.owners |= owners


@pytest.mark.parametrize(
    ("held", "last", "whole"),
    [
        ((OLD, 5), owner(5), True),
        ((OLD, 6), owner(5, "b"), True),
        ((OLD, 4), owner(5), False),
        ((OLD - 1, 9), owner(5), False),
        ((OLD, 5), owner(5, "b"), False),
        ((OLD, 5), owner(5, "b", still=False), True),
        ((-1, -1), owner(-1), False),
    ],
)
def test_which_store_has_everything(
    held: tuple[int, int], last: PartitionOwner, whole: bool
) -> None:
    assert is_whole(held, last, "a") is whole


def test_the_last_owner_adopts_its_rows_and_notes_it() -> None:
    world = World()
    world.holds(1, 5)
    world.owners[1] = owner(5)
    world.adopt(1)
    assert [key for key, _row in world.changelog[1]] == [key_in(1), PARTITION_KEY]
    assert version(world.rows[1][key_in(1)]) == (NEW, -1)
    assert world.owners[1] == PartitionOwner(NEW, -1, PARTITIONS, "a", open=True)


@pytest.mark.parametrize("offset", [None, 4])
def test_rows_that_are_elsewhere_are_named_and_nothing_is_changed(offset: int | None) -> None:
    world = World()
    if offset is not None:
        world.holds(1, offset)
    world.holds(2, 8)
    world.owners = {1: owner(5, "b"), 2: owner(8)}
    before = dict(world.rows)
    with pytest.raises(RowsElsewhere) as caught:
        world.adopt(1, 2)
    assert caught.value.partitions == (1,)
    for text in (
        "waits for the rows of partition 1:",
        "instance 'b', up to offset 5 of log epoch 7",
        "has none" if offset is None else "has them up to offset 4",
        "redis-cli HDEL headstart:owners PARTITION",
    ):
        assert text in str(caught.value)
    assert world.rows.get(1) == before.get(1)
    assert not world.changelog[1]
    assert world.changelog[2], "what it has is adopted all the same, so that others find it"


def test_rows_of_another_workers_partition_are_given_to_it() -> None:
    giver = World()
    giver.holds(3, 5)
    giver.owners[3] = owner(5)
    giver.adopt(0)
    assert [key for key, _row in giver.changelog[3]] == [key_in(3), PARTITION_KEY]
    assert giver.owners[3] == PartitionOwner(NEW, -1, PARTITIONS, "a", open=False)
    giver.owners[3] = owner(5)
    giver.holds(3, 5)
    giver.adopt(0)
    assert len(giver.changelog[3]) == 2, "not again"
    giver.owners[3] = owner(6)
    giver.changelog[3].clear()
    giver.adopt(0)
    assert not giver.changelog[3], "it has not all of them"
    assert giver.released == [3, 3, 3], "the table of a partition that is not assigned is closed"
    giver.owners[3] = PartitionOwner(NEW, 5, PARTITIONS, "b", open=True)
    giver.adopt(0)
    assert giver.released == [3, 3, 3], "and not opened once the partition is adopted"


def test_what_another_worker_adopts_meanwhile_is_restored_first() -> None:
    """It wrote its rows after recovery had read the changelog."""
    world = World()
    world.holds(2, 5)
    world.owners = {n: PartitionOwner(NEW, -1, PARTITIONS, "b", open=False) for n in (1, 2)}
    with pytest.raises(RowsElsewhere, match="partition 1, partition 2"):
        world.adopt(1, 2)
    assert not world.changelog[2]


def test_without_a_note_rows_are_adopted_with_a_warning() -> None:
    world = World()
    world.holds(1, 5)
    with capture_logs() as lines:
        world.adopt(0, 1)
    assert len(world.changelog[1]) == 2
    (warning,) = [each for each in lines if each["log_level"] == "warning"]
    assert (warning["event"], warning["partition"]) == ("epoch_migration.unknown_owner", 1)


def test_rows_of_another_number_of_partitions_are_not_waited_for() -> None:
    """docs/how-to/partitions.md: its rows come back by an import."""
    world = World()
    world.owners[1] = owner(5, "b", partitions=2)
    world.adopt(1)
    assert not world.changelog[1]


def test_with_up_what_was_lost_is_not_waited_for() -> None:
    """Its broker forgets; after a power loss the store may lack what Redis was sent."""
    world = World(volatile=True)
    world.holds(1, 4)
    world.holds(3, 4)
    world.owners = {1: owner(5), 2: owner(5), 3: owner(5, "a name of before")}
    with capture_logs() as lines:
        world.adopt(1, 2, 3)
    lost = [each["partition"] for each in lines if each["event"] == "epoch_migration.rows_lost"]
    assert lost == [1, 2, 3]
    assert len(world.changelog[1]) == len(world.changelog[3]) == 2


def test_with_up_rows_are_waited_for_while_the_worker_that_has_them_runs(tmp_path: Path) -> None:
    world = World(volatile=True)
    world.workers, world.owners = tmp_path, {1: owner(5, "b")}
    beside = tmp_path / "thresholds-b"
    with closing(_lock(beside / "worker.lock", wait=False)):
        (beside / "tables" / "contexts-1.db").mkdir(parents=True)
        with pytest.raises(RowsElsewhere, match="all partitions that are assigned to this worker"):
            world.adopt(1)
        (beside / "tables" / "contexts-1.db").rmdir()
        world.adopt(1)  # its directory was wiped
        (beside / "tables" / "contexts-1.db").mkdir()
    world.adopt(1)  # it has ended


def test_with_up_the_worker_that_lost_rows_gives_what_it_has_left() -> None:
    for volatile in (True, False):
        giver = World(volatile=volatile)
        giver.holds(3, 4)
        giver.owners[3] = owner(5)
        giver.adopt(0)
        assert bool(giver.changelog[3]) is volatile


def test_redis_is_waited_for_only_where_something_is_to_be_adopted() -> None:
    world = World()
    world.away = True
    world.holds(1, 5, NEW)
    world.adopt(1)
    with pytest.raises(CannotOpenYet, match="waits for redis"):
        world.adopt(1, 2)
    world.away = False
    world.adopt(1, 2)
    assert world.owners[1] == PartitionOwner(NEW, 5, PARTITIONS, "a", open=True)
