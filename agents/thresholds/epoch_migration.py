"""Migrates rows to a new log epoch: writes them to the new changelog before offset 0.

The partition's own row is sent last. Until it arrives, the local store is of the old epoch and a
restart begins the migration again; every batch is idempotent.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from agents.producer import BatchProducer
from agents.thresholds.checkpoint_writer import APPENDED_BYTES
from agents.thresholds.store import ContextStore
from headstart.keys import workflow_type_of
from processing.partition_count import HOW
from processing.records.partitioner import partition_for
from processing.state.chunking import chunk_rows
from processing.state.rows import (
    CONTEXT,
    PARTITION_KEY,
    context_of,
    is_deleted,
    version,
    with_version,
)
from topics.catalogue import CHANGELOG
from topics.epoch import Epoch

log = structlog.get_logger()


class CountDiffers(RuntimeError):
    """A worker's directory was created with another number of partitions than the topic has."""

    def __init__(self, data: Path, learned: int, partitions: int) -> None:
        super().__init__(
            f"{data} was created with {learned} partitions, and the topic has {partitions}: keys "
            f"would belong to other partitions. Nothing was changed; {HOW}"
        )


class OtherPartitions(RuntimeError):
    """The local store was created with another number of partitions."""

    def __init__(self, partition: int, partitions: int, path: str) -> None:
        super().__init__(
            f"the local store's partition {partition} holds {path}, which belongs to another of "
            f"the topic's {partitions} partitions: their number was changed. Nothing was changed "
            f"in the data directory; {HOW}"
        )


class LaterEpoch(RuntimeError):
    """The local store has seen a later log epoch than the broker's."""

    def __init__(self, found: int, epoch: int) -> None:
        super().__init__(
            f"the local store is of log epoch {found}, this broker's is {epoch}: the data "
            "directory belongs to another broker. Set the right one with --data, or move it away"
        )


async def migrate_rows_to_epoch(
    store: ContextStore,
    producer: BatchProducer,
    partition: int,
    epoch: Epoch,
    *,
    same_count: bool,
) -> None:
    """Migrate the rows of an older epoch. Raises `LaterEpoch` and `OtherPartitions`.

    `same_count`: the store was created with as many partitions as the topic has. Contexts of other
    partitions then come from another count, which earlier versions migrated; nothing has been
    learned in them since, and they are left out.
    """
    own = store.get_row(partition, PARTITION_KEY)
    if own is None or version(own)[0] == epoch.number:
        return
    if version(own)[0] > epoch.number:
        raise LaterEpoch(version(own)[0], epoch.number)
    foreign = await _foreign_keys(store, partition, epoch.partitions)
    if foreign and not same_count:
        raise OtherPartitions(partition, epoch.partitions, context_of(next(iter(foreign)))[1])
    if foreign:
        log.warning("epoch_migration.foreign_contexts", partition=partition, contexts=len(foreign))
    # Offsets begin again: in the new log nothing of these rows has been applied yet.
    count = 0
    async for rows in store.scan_chunks(partition):
        migrated = [
            (key, with_version(row, epoch.number, -1))
            for key, row in rows
            if key != PARTITION_KEY and key not in foreign
        ]
        for part in chunk_rows(migrated, APPENDED_BYTES):
            await producer.send_rows(CHANGELOG.name, partition, part)
            store.write_rows(partition, part, None)
        count += len(migrated)
    last = [(PARTITION_KEY, with_version(own, epoch.number, -1))]
    _first, end = await producer.send_rows(CHANGELOG.name, partition, last)
    store.write_rows(partition, last, end)
    log.info("epoch_migration.completed", partition=partition, rows=count, epoch=epoch.number)


async def _foreign_keys(store: ContextStore, partition: int, partitions: int) -> set[bytes]:
    """Return the keys of contexts that belong to another partition."""
    found = set()
    async for rows in store.scan_chunks(partition):
        for key, row in rows:
            if key.startswith(CONTEXT) and not is_deleted(row):
                tenant, path = context_of(key)
                if partition_for(tenant, workflow_type_of(path), partitions) != partition:
                    found.add(key)
    return found
