"""The changelog offset that the local store remembers, where another owner was ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from delivery.commits import Delivery, Row
from processing.partition import Commit
from processing.rows import PARTITION_KEY, PartitionRow, encode_partition, with_version

EPOCH = 3


def row(offset: int) -> bytes:
    return with_version(bytes(16) + b"state", EPOCH, offset)


def partition(offset: int) -> Row:
    return PARTITION_KEY, encode_partition(PartitionRow(), EPOCH, offset)


class Outlets:
    """A changelog and a local store in memory; everything else is accepted."""

    def __init__(self) -> None:
        self.log: list[Row] = []
        self.table: dict[bytes, bytes] = {}
        self.held: int | None = None

    def current(self) -> bool:
        return True

    async def send_rows(self, rows: Sequence[Row]) -> tuple[int, int]:
        first = len(self.log)
        self.log += rows
        return first, len(self.log) - 1

    async def changelog(self, begin: int, end: int) -> Sequence[Row]:
        return self.log[begin:end]

    def get_row(self, key: bytes) -> bytes | None:
        return self.table.get(key)

    def write_rows(self, rows: Sequence[Row], changelog_offset: int | None) -> None:
        self.table.update((key, value) for key, value in rows if value is not None)
        if changelog_offset is not None:
            self.held = changelog_offset

    async def publish(self, _thresholds: object) -> None: ...

    async def announce(self, _moved: object) -> None: ...

    def done(self, _end: int) -> None: ...


def deliver(delivery: Delivery, rows: list[Any]) -> None:
    asyncio.run(delivery.deliver(Commit(0, rows, [], [], [], 0)))


def test_it_stays_before_rows_that_are_newer_than_ours_until_ours_are_as_new() -> None:
    outlets = Outlets()
    delivery = Delivery(outlets, 0)
    # A worker that the group gave up, and that does not know it yet, is ahead of us.
    outlets.log += [(b"touched only there", row(2)), partition(3)]
    deliver(delivery, [(b"a", row(1)), partition(1)])
    assert outlets.held is None, "a recovery from here on would miss the other one's rows"
    deliver(delivery, [(b"b", row(2)), partition(2)])
    assert outlets.held is None
    deliver(delivery, [(b"touched only there", row(2)), partition(3)])
    assert outlets.held == len(outlets.log) - 1


def test_it_passes_rows_that_are_older_than_ours() -> None:
    outlets = Outlets()
    delivery = Delivery(outlets, 0)
    outlets.log += [(b"a", row(0)), partition(0)]
    deliver(delivery, [(b"a", row(1)), partition(1)])
    assert outlets.held == len(outlets.log) - 1
    assert outlets.table[b"a"] == row(1)
