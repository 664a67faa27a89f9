"""A partition's table replaced by what a rebuild in the log says it is, while readers read.

Where the process ends in the middle, the next owner of the partition begins again: the watermark is
still before the rebuild.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Protocol

import structlog

from agents.pacing import paced
from agents.record_path.reading import read_batches
from agents.services import PartitionServices
from delivery.commits import Delivery
from delivery.takeover import feed, replacing
from processing.partition import Partition
from processing.records import RecordBatch
from processing.takeover import Takeover
from topics.catalogue import EVENTS

log = structlog.get_logger()


class RebuildTarget(Protocol):
    """The partition whose table is replaced."""

    partition: int
    core: Partition
    delivery: Delivery

    def current(self) -> bool:
        """Return whether this process may still write."""
        ...

    async def restore(self) -> None:
        """Read the replaced table into a new core."""
        ...


async def take_over(owned: RebuildTarget, services: PartitionServices) -> None:
    """Take over the rebuild that an owned partition stands at, or go on without if it cannot be.

    Returns in the middle where the partition is no longer this process's.
    """
    core, place, epoch = owned.core, owned.partition, services.epoch
    assert core.taking is not None
    rules, offset = services.rules, core.reached
    takeover = Takeover(core.taking, offset, place, epoch.partitions, epoch.number, rules)
    await feed(takeover, partial(_read, services, place))
    if takeover.refused is not None:
        log.error("thresholds.rebuild.refused", partition=place, reason=takeover.refused)
        core.pass_over(takeover.refused)
        await owned.delivery.deliver(core.commit())
        return
    before = [key async for rows in paced(services.store.scan(place)) for key, _row in rows]
    count = 0
    for commit in replacing(takeover.replacing(before), place, offset):
        if not owned.current():
            return
        await owned.delivery.deliver(commit)
        count += len(commit.rows)
        services.app.opened += 1  # progress, for whoever watches: a large table takes long
    await owned.restore()
    log.info("thresholds.rebuild.taken", partition=place, offset=offset, rows=count)


async def _read(
    services: PartitionServices, partition: int, log: range
) -> AsyncIterator[RecordBatch]:
    begin, end = {partition: log.start}, {partition: log.stop}
    async for batch in read_batches(services.kafka, EVENTS.name, begin, end):
        batch.drop_before(log.start)
        services.app.opened += 1
        yield batch
