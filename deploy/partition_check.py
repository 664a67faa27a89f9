"""Checks that a data directory's learned state has the partition count of the topics."""

from __future__ import annotations

from pathlib import Path

from deploy.local import StackError
from processing.partition_count import HOW, PartitionCount, read_count


def learned_partitions(data: Path) -> PartitionCount | None:
    """Return the partition count of the learned state in this directory, None if unknown."""
    found = [
        count for path in (data / "workers").glob("thresholds-*") if (count := read_count(path))
    ]
    return max(found, key=lambda count: (count.sure, count.number), default=None)


def _contradicting(data: Path, partitions: int) -> PartitionCount | None:
    """Return the partition count of the learned state if it certainly differs."""
    learned = learned_partitions(data)
    return learned if learned is not None and learned.contradicts(partitions) else None


def require_partitions(data: Path, partitions: int) -> None:
    """Raise `StackError` if the directory's learned state has another partition count."""
    learned = _contradicting(data, partitions)
    if learned is None:
        return
    raise StackError(
        f"what was learned in {data} is of {learned.number} partitions, and the topics have "
        f"{partitions}, or would get so many: its keys would belong to other partitions. Start "
        f"with --partitions {learned.number}; to change the number, {HOW}. Nothing was changed"
    )


def require_log_partitions(data: Path, kafka: str, partitions: int) -> None:
    """Raise `StackError` if a running log has another partition count than the learned state.

    For commands that compare the two: they would check rows and Redis against wrong partitions.
    """
    learned = _contradicting(data, partitions)
    if learned is None:
        return
    raise StackError(
        f"the log at {kafka} has {partitions} partitions, and what was learned in {data} is of "
        f"{learned.number}: they cannot be compared, and threshold workers do not start. Nothing "
        f"was changed. Where both belong together, {HOW}; else name the right --data or --kafka"
    )
