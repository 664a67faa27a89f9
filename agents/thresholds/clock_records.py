"""Says what time it is, as clock records, to the partitions that a worker owns.

A worker appends one to each partition that it takes over, unless the previous owner has just done
so, and then one as each tick begins, also where no events arrive: the first events after a pause
count as of the tick in which they arrive. If the broker does not take one, the worker tries again
at the next look; until then nothing expires.

A partition's clock does not go back, so a time that is too late cannot be taken back. A worker
whose clock is ahead of Redis' says none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from agents.thresholds.partition import OwnedPartition
from agents.thresholds.services import PartitionServices
from agents.thresholds.sound_clock import SoundClock
from topics.control.messages import Clock, control_records

LONGEST_S: Final = 5.0
"""How long is waited for the broker, all partitions together: a rebalance waits for it, too."""

log = structlog.get_logger()


async def send_clock_records(
    owned: Sequence[OwnedPartition], services: PartitionServices, clock: SoundClock
) -> None:
    """Send a clock record into each owned partition where one is due."""
    now_ms = services.env.clock.now_ms()
    due = [each for each in owned if each.clock_schedule.due(each.core, now_ms)]
    if not due or not await clock.believes(now_ms):
        return
    try:
        async with asyncio.timeout(LONGEST_S):
            await asyncio.gather(*(_say(each, now_ms, services) for each in due))
    except TimeoutError:
        log.warning("thresholds.clock.waits", error=f"not acknowledged in {LONGEST_S:.0f} s")


async def _say(owned: OwnedPartition, now_ms: int, services: PartitionServices) -> None:
    if not owned.targets.current():
        return
    said = Clock(services.env.clock.new_id(now_ms), now_ms)
    try:
        await services.producer.send_controls(
            control_records(said, [owned.partition], services.rules.operators_key)
        )
    except (KafkaError, OSError) as error:
        log.warning("thresholds.clock.waits", partition=owned.partition, error=str(error))
        return
    owned.clock_schedule.said(now_ms)
