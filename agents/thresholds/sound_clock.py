"""When a partition is to be told the time, and whether the worker's clock may be believed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import structlog

from agents.health.stall_guard import running_s
from headstart.events.schema import FIRST_MS, LAST_MS
from processing.state.clock import TICK_MS

if TYPE_CHECKING:
    from processing.task import PartitionTask

AHEAD_MS: Final = 2 * TICK_MS
"""How far a partition's clock may be ahead of the worker's before that is worth a warning."""
FAST_MS: Final = TICK_MS
"""How far the worker's clock may be ahead of Redis' before it says no time any more."""

log = structlog.get_logger()


class ClockSchedule:
    """When one partition is to be told the time."""

    def __init__(self) -> None:
        self._said: int | None = None
        """The tick in which that was last done."""
        self._warned = False

    def due(self, core: PartitionTask, now_ms: int) -> bool:
        """Return whether to say now what time it is; `said` is to be called when that was done."""
        clock, row, tick = core.clock, core.clock.row, now_ms // TICK_MS
        if tick == self._said:
            return False
        if not clock.set_by_records:
            return True
        self._warn_if_ahead(core, now_ms)
        # By whole ticks, wherever in one the last was said: else the clock would lag behind by that
        # for ever, and what arrives in the meantime would have the time of the tick's last ms.
        return tick > row.clock // TICK_MS

    def said(self, now_ms: int) -> None:
        """Note that it was said."""
        self._said = now_ms // TICK_MS

    def _warn_if_ahead(self, core: PartitionTask, now_ms: int) -> None:
        ahead = core.clock.row.clock - now_ms
        if ahead <= AHEAD_MS:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning(
                "thresholds.clock.ahead",
                partition=core.partition,
                minutes=round(ahead / 60_000),
                hint="this worker's clock is slow, or another worker's was fast: set the clocks "
                "(NTP); until time has caught up nothing expires here",
            )


class SoundClock:
    """Whether the worker's clock may be believed: it is held against Redis' own.

    While Redis is away it is held against what Redis last said, and the time passed since. Where
    Redis was never there, there is nothing to hold it against, and it is believed.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        """`ask`: returns the time by Redis' clock, Unix ms; raises `ConnectionError`."""
        self._ask = ask
        self._began_ms: float | None = None
        """What Redis' clock said as `running_s` was 0."""
        self._told = False

    async def believes(self, now_ms: int) -> bool:
        """Return whether a time may be said; log once why not."""
        hint = ""
        if not FIRST_MS <= now_ms <= LAST_MS:
            hint = "it is before the year 2000, or after 9999"
        elif (ahead := now_ms - await self._other_ms(now_ms)) > FAST_MS:
            hint = f"it is {ahead / 60_000:.0f} minutes ahead of Redis'"
        if not hint:
            self._told = False
        elif not self._told:
            self._told = True
            log.error(
                "thresholds.clock.wrong",
                now_ms=now_ms,
                reason=f"this worker's clock is not believed: {hint}",
                hint="set the clocks of this host and of Redis' (NTP; `headstart doctor` compares "
                "them); until then nothing expires in this worker's partitions",
            )
        return not hint

    async def _other_ms(self, now_ms: int) -> int:
        try:
            other = await self._ask()
        except ConnectionError:
            if self._began_ms is None:
                return now_ms
        else:
            self._began_ms = other - running_s() * 1000.0
        return int(self._began_ms + running_s() * 1000.0)
