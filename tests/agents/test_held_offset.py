"""The changelog offset that the local store remembers, where another owner was ahead."""

from __future__ import annotations

import asyncio
from typing import Any

from agents.thresholds.checkpoint_writer import CheckpointWriter, Row
from processing.state.rows import PARTITION_KEY, TaskStateRow, encode_partition, with_version
from processing.task import Checkpoint
from tests.agents.checkpoint_world import World

EPOCH = 3


def row(offset: int) -> bytes:
    return with_version(bytes(16) + b"state", EPOCH, offset)


def partition(offset: int) -> Row:
    return PARTITION_KEY, encode_partition(TaskStateRow(), EPOCH, offset)


def deliver(writer: CheckpointWriter, rows: list[Any]) -> None:
    asyncio.run(writer.write(Checkpoint(0, rows, [], [], [], 0)))


def test_it_stays_before_rows_that_are_newer_than_ours_until_ours_are_as_new() -> None:
    outlets = World()
    writer = CheckpointWriter(outlets, 0)
    # A worker that the group gave up, and that does not know it yet, is ahead of us.
    outlets.log += [(b"touched only there", row(2)), partition(3)]
    deliver(writer, [(b"a", row(1)), partition(1)])
    assert outlets.held is None, "a recovery from here on would miss the other one's rows"
    deliver(writer, [(b"b", row(2)), partition(2)])
    assert outlets.held is None
    deliver(writer, [(b"touched only there", row(2)), partition(3)])
    assert outlets.held == len(outlets.log) - 1


def test_it_passes_rows_that_are_older_than_ours() -> None:
    outlets = World()
    writer = CheckpointWriter(outlets, 0)
    outlets.log += [(b"a", row(0)), partition(0)]
    deliver(writer, [(b"a", row(1)), partition(1)])
    assert outlets.held == len(outlets.log) - 1
    assert outlets.table[b"a"] == row(1)
