"""Replaces a partition's table by a rebuild in the log, while readers continue.

If the process ends before that is complete, the next owner begins again: the applied offset is
still before the rebuild.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Final

import structlog

from agents.thresholds.checkpoint_writer import CheckpointTargets, CheckpointWriter
from agents.thresholds.services import PartitionServices
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.control.rebuild_state import KEY
from processing.rebuild import Row, TableRebuild, feed
from processing.records.batch import RecordBatch
from processing.state.rows import PARTITION_KEY
from processing.task import Checkpoint, PartitionTask
from topics.catalogue import EVENTS

LAST: Final = {KEY, PARTITION_KEY}
"""Rows that must be in the last checkpoint together: one alone would be half a rebuild."""

log = structlog.get_logger()


async def apply_rebuild(
    core: PartitionTask,
    writer: CheckpointWriter,
    targets: CheckpointTargets,
    services: PartitionServices,
) -> bool:
    """Replace the table by the rebuild that `core` has reached, or skip it where that is refused.

    Return whether the table was replaced, so that it is to be restored. If the partition is lost
    meanwhile, the rebuild stays pending.
    """
    assert core.pending_rebuild is not None
    place, epoch, offset = core.partition, services.epoch, core.reached
    rebuild = TableRebuild(
        core.pending_rebuild, offset, place, epoch.partitions, epoch.number, services.rules
    )
    await feed(rebuild, partial(_read, services, place))
    if rebuild.refused is not None:
        log.error("rebuild.rejected", partition=place, reason=rebuild.refused)
        core.skip_rebuild(rebuild.refused)
        await writer.write(core.commit())
        return False
    before = [key async for rows in services.store.scan_chunks(place) for key, _row in rows]
    count = 0
    for checkpoint in replacement_commits(
        rebuild.replacing(before), place, offset, services.env.tuning.rebuild_checkpoint_bytes
    ):
        if not targets.current():
            return False
        await writer.write(checkpoint)
        count += len(checkpoint.rows)
        services.app.opened += 1  # progress for the supervisor: a large table takes long
    log.info("rebuild.applied", partition=place, offset=offset, rows=count)
    return True


async def _read(
    services: PartitionServices, partition: int, log: range
) -> AsyncIterator[RecordBatch]:
    begin, end = {partition: log.start}, {partition: log.stop}
    async for batch in services.clients.read_batches(services.kafka, EVENTS.name, begin, end):
        batch.drop_before(log.start)
        services.app.opened += 1
        yield batch


def replacement_commits(
    rows: Iterable[Row], partition: int, offset: int, max_bytes: int
) -> Iterator[Checkpoint]:
    """Yield the checkpoints that replace a table at `offset`, from `TableRebuild.replacing`.

    The group's offset moves past `offset` with the last of them, so that a successor publishes
    what may be unpublished.
    """
    part: list[Row] = []
    size = 0
    for key, row in rows:
        if size > max_bytes and key not in LAST:
            yield _commit(part, partition, offset)
            part, size = [], 0
        part.append((key, row))
        size += len(key) + len(row)
    yield _commit(part, partition, offset + 1)


def _commit(rows: list[Row], partition: int, end: int) -> Checkpoint:
    published = [threshold_from_row(key, row) for key, row in rows if is_published(partition, key)]
    return Checkpoint(end, rows, published, published, [], 0)
