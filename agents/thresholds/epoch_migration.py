"""A new log epoch: the rows of the old one are written to the new changelog before offset 0.

Until the partition's own row arrives, which is the last to be sent, the old epoch stands in the
local store and the adoption begins again; every batch is idempotent.
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
    """A worker's directory was learned with another number of partitions than the topic has."""

    def __init__(self, data: Path, learned: int, partitions: int) -> None:
        super().__init__(
            f"{data} was learned with {learned} partitions, and the topic has {partitions}: keys "
            f"would belong to other partitions. Nothing was changed; {HOW}"
        )


class OtherPartitions(RuntimeError):
    """The local store was made with another number of partitions; its keys belong elsewhere."""

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
            "directory belongs to another broker. Name the right one with --data, or move it aside"
        )


async def migrate_rows_to_epoch(
    store: ContextStore,
    producer: BatchProducer,
    partition: int,
    epoch: Epoch,
    *,
    same_count: bool,
) -> None:
    """Carry the rows of an older epoch over. Raises `LaterEpoch` and `OtherPartitions`.

    `same_count`: the store was made with as many partitions as the topic has. Contexts of other
    partitions are then remains of another number, which earlier versions adopted; nothing has been
    learned in them since, and they are left out.
    """
    own = store.get_row(partition, PARTITION_KEY)
    if own is None or version(own)[0] == epoch.number:
        return
    if version(own)[0] > epoch.number:
        raise LaterEpoch(version(own)[0], epoch.number)
    foreign = await _wrong_partition_reason(store, partition, epoch.partitions)
    if foreign and not same_count:
        raise OtherPartitions(partition, epoch.partitions, context_of(next(iter(foreign)))[1])
    if foreign:
        log.warning("thresholds.epoch.foreign", partition=partition, contexts=len(foreign))
    # Offsets begin again: in the new log nothing of these rows has been applied yet.
    count = 0
    async for rows in store.scan_chunks(partition):
        adopted = [
            (key, with_version(row, epoch.number, -1))
            for key, row in rows
            if key != PARTITION_KEY and key not in foreign
        ]
        for part in chunk_rows(adopted, APPENDED_BYTES):
            await producer.send_rows(CHANGELOG.name, partition, part)
            store.write_rows(partition, part, None)
        count += len(adopted)
    last = [(PARTITION_KEY, with_version(own, epoch.number, -1))]
    _first, end = await producer.send_rows(CHANGELOG.name, partition, last)
    store.write_rows(partition, last, end)
    log.info("thresholds.epoch.adopted", partition=partition, rows=count, epoch=epoch.number)


async def _wrong_partition_reason(
    store: ContextStore, partition: int, partitions: int
) -> set[bytes]:
    """Return the keys of contexts that belong to another of so many partitions."""
    found = set()
    async for rows in store.scan_chunks(partition):
        for key, row in rows:
            if key.startswith(CONTEXT) and not is_deleted(row):
                tenant, path = context_of(key)
                if partition_for(tenant, workflow_type_of(path), partitions) != partition:
                    found.add(key)
    return found
