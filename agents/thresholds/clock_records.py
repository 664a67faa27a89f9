"""Sends clock records, by which everything expires, into the partitions of a worker.

A partition gets one when it is taken over, unless the previous owner has just sent one, and then
one at the beginning of each tick, also while no events arrive: the first events after a pause count
as of the tick in which they arrive. What the broker does not take is sent at the next check; until
then nothing expires.

A partition's clock never goes back, so a time that is too late cannot be corrected. A worker whose
clock is ahead of that of Redis sends none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from agents.environment import Clocks
from agents.thresholds.partition import OwnedPartition
from agents.thresholds.sound_clock import SoundClock
from topics.control import messages

TIMEOUT_S: Final = 5.0
"""For the broker, all partitions together: a rebalance waits for it too."""

log = structlog.get_logger()


async def send_clock_records(
    owned: Sequence[OwnedPartition], clock: Clocks, sound: SoundClock
) -> None:
    """Send a clock record into each owned partition where one is due."""
    now_ms = clock.now_ms()
    due = [each for each in owned if each.clock_schedule.due(each.core, now_ms)]
    if not due or not await sound.is_sound(now_ms):
        return
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(_send(each, now_ms, clock) for each in due))
    except TimeoutError:
        log.warning("clock_records.retrying", error=f"not acknowledged in {TIMEOUT_S:.0f} s")


async def _send(owned: OwnedPartition, now_ms: int, clock: Clocks) -> None:
    if not owned.targets.current():
        return
    record = messages.Clock(clock.new_id(now_ms), now_ms)
    try:
        if await owned.targets.send_control(record, [owned.partition]):
            owned.clock_schedule.sent(now_ms)
    except (KafkaError, OSError) as error:
        log.warning("clock_records.retrying", partition=owned.partition, error=str(error))
