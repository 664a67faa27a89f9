"""Carries out purges in the transactions of the event sink, at their place in each partition.

Covered events of a batch are left out, and a purge that ends the batch deletes what is stored of
its partition. Other partitions follow at their own record.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import structlog
from psycopg import AsyncConnection

from processing.records.partitioner import partition_for
from processing.records.sink_lines import PartitionPurge, SinkBatch
from sinks.postgres.episodes import touched_runs, touched_tenants
from sinks.postgres.purges import (
    StoredPurge,
    erase,
    is_known,
    purged_types,
    read_purges,
    read_purges_naming,
)
from sinks.postgres.tenant_locks import lock_tenants
from topics.control.purges import (
    EventSubject,
    PartitionPurges,
    PlacedPurge,
    subject_name,
    subject_of,
)
from topics.epoch import Epoch

log = structlog.get_logger()

MOST_READ: Final = 200
"""Purges of the tenants of a batch that are read whatever they name. Where there are more, as after
thousands of deleted memories, those that name a subject of the batch: each takes some 20 us."""


class BatchPurges:
    """What purges do to one batch, in each attempt to store it."""

    def __init__(self, unpacked: SinkBatch, epoch: Epoch) -> None:
        self._batch, self._epoch = unpacked, epoch

    async def begin(self, connection: AsyncConnection[Any]) -> Collection[int]:
        """Lock the tenants of the batch; return the positions of lines that were purged before."""
        tenants = touched_tenants(self._batch.touched(touched_runs))
        alone = {each.purge.tenant for each in self._batch.purges}
        if not tenants and not alone:
            return ()
        async with connection.pipeline():  # one round trip
            await lock_tenants(connection, tenants, alone)
            purges = await read_purges(connection, tenants, MOST_READ + 1) if tenants else []
        if not purges:
            return ()
        subjects = [subject_of(record) for record in self._batch.records]
        if len(purges) > MOST_READ:
            named = (each for each in subjects if each is not None)
            purges = await read_purges_naming(connection, tenants, named)
        return self._covered(purges, subjects)

    def _covered(self, stored: list[StoredPurge], subjects: list[EventSubject | None]) -> set[int]:
        of_partition: dict[int, PartitionPurges] = {}
        found = set()
        for place, (batch, position) in enumerate(self._batch.sources):
            purges = of_partition.get(batch.partition)
            if purges is None:
                purges = of_partition[batch.partition] = PartitionPurges(
                    PlacedPurge(each.purge, each.offset(batch.partition, self._epoch.number))
                    for each in stored
                )
            subject = subjects[place]
            if subject is not None and purges.covers(subject, batch.offsets[position]):
                found.add(place)
        return found

    async def end(self, connection: AsyncConnection[Any]) -> None:
        """Carry out the purges that the batch ends with."""
        for each in self._batch.purges:
            await self._erase(connection, each)

    async def _erase(self, connection: AsyncConnection[Any], placed: PartitionPurge) -> None:
        purge, partition, offset = placed
        known = await is_known(connection, purge)
        types = [
            name
            for name in await purged_types(connection, purge, known=known)
            if partition_for(purge.tenant, name, self._epoch.partitions) == partition
        ]
        counts = await erase(
            connection, purge, types=types, known=known, epoch=self._epoch.number,
            offsets={partition: offset},
        )  # fmt: skip
        log.info(
            "purge.applied", id=purge.id, tenant=purge.tenant, of=subject_name(purge)[0],
            partition=partition, offset=offset, rows=sum(counts.values()),
        )  # fmt: skip
