"""A partition's table replaced by what a rebuild in the log says it is, while readers read.

Where the process ends in the middle, the next owner of the partition begins again: the watermark is
still before the rebuild.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

import structlog

from agents.pacing import paced
from agents.record_path.reading import read_batches
from delivery.takeover import feed, replacing
from processing.records import RecordBatch
from processing.takeover import Takeover
from topics.catalogue import EVENTS

if TYPE_CHECKING:
    from agents.ownership import Ownership
    from agents.thresholds import ThresholdRuntime

log = structlog.get_logger()


async def take_over(owned: Ownership, runtime: ThresholdRuntime) -> None:
    """Take over the rebuild that an owned partition stands at, or go on without if it cannot be.

    Returns in the middle where the partition is no longer this process's.
    """
    core, place, epoch = owned.core, owned.partition, runtime.epoch
    assert core.taking is not None
    rules, offset = runtime.rules, core.reached
    takeover = Takeover(core.taking, offset, place, epoch.partitions, epoch.number, rules)
    await feed(takeover, partial(_read, runtime, place))
    if takeover.refused is not None:
        log.error("thresholds.rebuild.refused", partition=place, reason=takeover.refused)
        core.pass_over(takeover.refused)
        await owned.delivery.deliver(core.commit())
        return
    before = [key async for rows in paced(runtime.store.scan(place)) for key, _row in rows]
    count = 0
    for commit in replacing(takeover.replacing(before), place, offset):
        if not owned.current():
            return
        await owned.delivery.deliver(commit)
        count += len(commit.rows)
        runtime.app.opened += 1  # progress, for whoever watches: a large table takes long
    await owned.restore()
    log.info("thresholds.rebuild.taken", partition=place, offset=offset, rows=count)


async def _read(
    runtime: ThresholdRuntime, partition: int, log: range
) -> AsyncIterator[RecordBatch]:
    begin, end = {partition: log.start}, {partition: log.stop}
    async for batch in read_batches(runtime.kafka, EVENTS.name, begin, end):
        batch.drop_before(log.start)
        runtime.app.opened += 1
        yield batch
