"""A worker that stopped at a limit meets it again at its next start."""

from __future__ import annotations

from pathlib import Path

import pytest
from faust.types import TP

from agents.dlq_limit_guard import FILE, DlqLimitGuard
from processing.records.batch import RecordBatch
from processing.records.dead_letters import dead_letter
from processing.records.decode import Rejection
from processing.records.dlq_limits import DlqLimits, RefusalLimitExceeded, Slice

LIMITS = DlqLimits(ratio=0, run=3)
HERE = TP("t", 0)


def guard(data: Path, begin: int, limits: DlqLimits = LIMITS, epoch: int = 1) -> DlqLimitGuard:
    made = DlqLimitGuard(limits, data, epoch)
    made.open(HERE, begin)
    return made


def refuse(guard: DlqLimitGuard, offset: int, count: int = 1, partition: int = 0) -> None:
    """One step of bad records."""
    offsets = list(range(offset, offset + count))
    batch = RecordBatch(
        "t", partition, offset, offset + count, offsets, [0] * count, [None] * count, [b"x"] * count
    )
    letters = [
        dead_letter(batch, place, Rejection(b"x", "bad", None), "g") for place in range(count)
    ]
    guard.committed(guard.check([Slice(batch, 0, count)], letters))


def test_nothing_passes_at_the_next_start(tmp_path: Path) -> None:
    first = guard(tmp_path, 10)
    refuse(first, 10)
    refuse(first, 11)
    assert not (tmp_path / FILE).exists()
    for _start in range(3):
        with pytest.raises(RefusalLimitExceeded):
            refuse(first, 12)
        first = guard(tmp_path, 12)


def test_a_step_that_is_too_much_at_once(tmp_path: Path) -> None:
    with pytest.raises(RefusalLimitExceeded):
        refuse(guard(tmp_path, 0), 0, count=5)
    again = guard(tmp_path, 0)
    refuse(again, 0, count=2)  # the step is cut otherwise this time
    with pytest.raises(RefusalLimitExceeded):
        refuse(again, 2, count=3)


def test_a_raised_limit_lets_it_go_on(tmp_path: Path) -> None:
    with pytest.raises(RefusalLimitExceeded):
        refuse(guard(tmp_path, 0), 0, count=3)
    refuse(guard(tmp_path, 0, DlqLimits(ratio=0, run=4)), 0, count=3)
    refuse(guard(tmp_path, 0, DlqLimits(ratio=0, run=0)), 0, count=3_000)


def test_counts_restart_after_another_worker_processed_records(tmp_path: Path) -> None:
    first = guard(tmp_path, 0)
    refuse(first, 0, count=2)
    with pytest.raises(RefusalLimitExceeded):
        refuse(first, 2)
    refuse(guard(tmp_path, 50), 50, count=2)
    with pytest.raises(RefusalLimitExceeded):
        refuse(guard(tmp_path, 2), 2)


def test_counts_restart_with_another_log_epoch(tmp_path: Path) -> None:
    first = guard(tmp_path, 0)
    refuse(first, 0, count=2)
    with pytest.raises(RefusalLimitExceeded):
        refuse(first, 2)
    refuse(guard(tmp_path, 0, epoch=2), 0, count=2)


def test_a_partition_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    first = guard(tmp_path, 0)
    refuse(first, 0, count=2)
    first.open(HERE, 2)
    with pytest.raises(RefusalLimitExceeded):
        refuse(first, 2)


def test_partitions_do_not_disturb_each_other(tmp_path: Path) -> None:
    first = guard(tmp_path, 0)
    first.open(TP("t", 1), 0)
    refuse(first, 0, count=2)
    refuse(first, 0, count=2, partition=1)
    with pytest.raises(RefusalLimitExceeded):
        refuse(first, 2)
    again = guard(tmp_path, 2)
    again.open(TP("t", 1), 2)
    with pytest.raises(RefusalLimitExceeded, match="partition 1"):
        refuse(again, 2, partition=1)


def test_an_unreadable_file_stops_no_worker(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"{")
    refuse(guard(tmp_path, 0), 0, count=2)
