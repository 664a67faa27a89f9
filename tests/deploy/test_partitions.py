"""What was learned with another number of partitions is neither adopted nor deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.thresholds.epoch_migration import OtherPartitions, migrate_rows_to_epoch
from agents.thresholds.store import ContextStore
from deploy.local import AlreadyRunning, StackConfig, StackError
from deploy.local.data_dir_lock import DataDirectoryLock
from deploy.partition_check import learned_partitions, require_partitions
from deploy.system import System
from processing.partition_count import PartitionCount, read_count, write_count
from processing.records.partitioner import partition_for
from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    TaskStateRow,
    context_key,
    encode_context,
    encode_partition,
)
from topics.epoch import Epoch


def tables(worker: Path, numbers: range) -> Path:
    for number in numbers:
        (worker / f"v1/tables/contexts-{number}.db").mkdir(parents=True)
    return worker


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    """A data directory whose worker has learned with four partitions."""
    write_count(tables(tmp_path / "workers/thresholds-0", range(4)), 4)
    return tmp_path


def test_the_count_is_read(learned: Path, tmp_path: Path) -> None:
    assert learned_partitions(learned) == PartitionCount(4, sure=True)
    assert learned_partitions(tmp_path / "another") is None


def test_another_count_is_refused_with_a_remedy_that_deletes_nothing(learned: Path) -> None:
    require_partitions(learned, 4)
    for count in (2, 8):
        with pytest.raises(StackError, match="--partitions 4") as caught:
            require_partitions(learned, count)
        assert "delete" not in str(caught.value)


def test_a_system_with_another_count_does_not_start(learned: Path) -> None:
    with pytest.raises(StackError, match="of 4 partitions"):
        System(StackConfig(data=learned), partitions=2).start()
    assert not (learned / "stack.json").exists()


def test_a_worker_need_not_have_had_every_partition(tmp_path: Path) -> None:
    """Of another host, or killed as it began: fewer tables than partitions contradict nothing."""
    found = read_count(tables(tmp_path / "workers/thresholds-0", range(4)))
    assert found == PartitionCount(4, sure=False)
    require_partitions(tmp_path, 8)
    with pytest.raises(StackError, match="of 4 partitions"):
        require_partitions(tmp_path, 3)


class Store:
    """The local store and the changelog's producer of one partition."""

    scan_chunks = ContextStore.scan_chunks

    def __init__(self, partition: int, paths: list[str]) -> None:
        self.partition, self.sent = partition, list[bytes]()
        row = encode_context(ContextRow(1, 5, 9, 4, 2, 1, 1, "td", (0.5, 0.0)))
        self.rows = {context_key("t", f"workflow_type={path}"): row for path in paths}
        self.rows[PARTITION_KEY] = encode_partition(TaskStateRow(), 1, 5)

    def get_row(self, _partition: int, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(self, _partition: int) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self.rows.items()))

    def write_rows(self, _partition: int, rows: Any, _offset: int | None) -> None:
        self.rows.update(rows)

    async def send_rows(self, _topic: str, _partition: int, rows: Any) -> tuple[int, int]:
        self.sent += [key for key, _row in rows]
        return 0, len(rows)


def adopt(store: Store, *, same_count: bool) -> None:
    epoch = Epoch(2, 8)
    run = migrate_rows_to_epoch(store, store, store.partition, epoch, same_count=same_count)  # type: ignore[arg-type]
    asyncio.run(run)


OWN, OTHER = (
    "refund",
    next(
        each
        for each in map(str, range(100))
        if partition_for("t", each, 8) != partition_for("t", "refund", 8)
    ),
)


def test_a_key_of_another_partition_is_not_adopted_and_nothing_is_changed() -> None:
    store = Store(partition_for("t", OWN, 8), [OWN, OTHER])
    before = dict(store.rows)
    with pytest.raises(OtherPartitions, match=f"workflow_type={OTHER}"):
        adopt(store, same_count=False)
    assert (store.rows, store.sent) == (before, [])


def test_rows_adopted_into_the_wrong_partition_are_omitted() -> None:
    store = Store(partition_for("t", OWN, 8), [OWN, OTHER])
    adopt(store, same_count=True)
    assert store.sent == [context_key("t", f"workflow_type={OWN}"), PARTITION_KEY]


def test_a_running_system_is_reported(learned: Path) -> None:
    hold = DataDirectoryLock.acquire(learned)
    try:
        with pytest.raises(AlreadyRunning, match="runs on"):
            System(StackConfig(data=learned), partitions=16).start()
    finally:
        hold.release()
