"""Says what time it is, as clock records, to the partitions that a worker owns.

The first thing for a partition that a worker takes up, unless another one has just done so; then
once a tick where something arrives or starts are open, and once in a while where nothing does. A
broker that does not take it is asked again at the next look: until then nothing expires.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog
from aiokafka.errors import KafkaError

from headstart.events import new_id
from processing.clock import STEP_MS, TICK_MS
from topics.controls import Clock, control_records

if TYPE_CHECKING:
    from agents.ownership import Ownership
    from agents.thresholds import ThresholdRuntime
    from processing.partition import Partition

LOOK_S: Final = 10.0
"""How often it is looked which partitions are to be told."""
LEAST_S: Final = TICK_MS / 1000
"""How long after a clock record of this worker it sends none into the same partition."""
IDLE_MS: Final = STEP_MS - 2 * TICK_MS
"""How old the clock of a partition may be to which nothing comes. A little less than one clock
record may move it."""
AHEAD_MS: Final = 2 * TICK_MS
"""How far a partition's clock may be ahead of the worker's before that is worth a warning."""

log = structlog.get_logger()


class Witness:
    """When one partition is to be told the time."""

    def __init__(self) -> None:
        self._said_s: float | None = None
        self._warned = False

    def due(self, core: Partition, now_ms: int, now_s: float) -> bool:
        """Return whether to say now what time it is; `said` is to be called when that was done."""
        clock, row = core.clock, core.clock.row
        if self._said_s is not None and now_s < self._said_s + LEAST_S:
            return False
        if not clock.witnessed:
            return True
        self._warn_if_ahead(core, now_ms)
        age = now_ms - row.clock
        if age < TICK_MS:
            return False
        return self._said_s is None or core.moved or age >= IDLE_MS

    def said(self, now_s: float) -> None:
        """Note that it was said."""
        self._said_s = now_s

    def _warn_if_ahead(self, core: Partition, now_ms: int) -> None:
        ahead = core.clock.row.clock - now_ms
        if ahead <= AHEAD_MS:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning(
                "thresholds.clock.ahead",
                partition=core.partition,
                minutes=round(ahead / 60_000),
                hint="this worker's clock is slow, or another worker's was fast; check NTP",
            )


async def say_the_time(owned: Ownership, runtime: ThresholdRuntime) -> None:
    """Send a clock record into an owned partition where one is due."""
    now_ms, now_s = time.time_ns() // 1_000_000, time.monotonic()
    if not owned.witness.due(owned.core, now_ms, now_s) or not owned.current():
        return
    said = Clock(new_id(now_ms), now_ms)
    try:
        await runtime.producer.send_controls(
            control_records(said, [owned.partition], runtime.operators_key)
        )
    except (KafkaError, OSError) as error:
        log.warning("thresholds.clock.waits", partition=owned.partition, error=str(error))
        return
    owned.witness.said(now_s)
