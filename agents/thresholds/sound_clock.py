"""When a partition needs a clock record, and whether the worker's clock can be trusted."""

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
"""How far the worker's clock may be ahead of that of Redis before it sends no clock records."""

log = structlog.get_logger()


class ClockSchedule:
    """When one partition needs a clock record."""

    def __init__(self) -> None:
        self._sent_tick: int | None = None
        self._warned = False

    def due(self, core: PartitionTask, now_ms: int) -> bool:
        """Return whether to send a clock record now; call `sent` when that is done."""
        clock, row, tick = core.clock, core.clock.row, now_ms // TICK_MS
        if tick == self._sent_tick:
            return False
        if not clock.set_by_records:
            return True
        self._warn_if_ahead(core, now_ms)
        # By whole ticks, whenever in one the last was sent: else the clock would lag by that for
        # ever, and what arrives in the meantime would have the time of the tick's last ms.
        return tick > row.clock // TICK_MS

    def sent(self, now_ms: int) -> None:
        """Note that a clock record was sent."""
        self._sent_tick = now_ms // TICK_MS

    def _warn_if_ahead(self, core: PartitionTask, now_ms: int) -> None:
        ahead = core.clock.row.clock - now_ms
        if ahead <= AHEAD_MS:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning(
                "clock.partition_ahead",
                partition=core.partition,
                minutes=round(ahead / 60_000),
                hint="this worker's clock is slow, or another worker's was fast: synchronise the "
                "clocks (NTP); nothing expires here until time has caught up",
            )


class SoundClock:
    """Compares the worker's clock with that of Redis.

    While Redis is away, its clock is extrapolated from its last answer. Where Redis has never
    answered, the worker's clock is trusted.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[int]], running_s: Callable[[], float] = running_s
    ) -> None:
        """`ask`: returns the time by the clock of Redis, Unix ms; raises `ConnectionError`."""
        self._ask, self._running_s = ask, running_s
        self._zero_ms: float | None = None
        """The clock of Redis when `running_s` was 0."""
        self._warned = False

    async def is_sound(self, now_ms: int) -> bool:
        """Return whether `now_ms` may be sent; log the reason once where it may not."""
        hint = ""
        if not FIRST_MS <= now_ms <= LAST_MS:
            hint = "it is before the year 2000, or after 9999"
        elif (ahead := now_ms - await self._redis_ms(now_ms)) > FAST_MS:
            hint = f"it is {ahead / 60_000:.0f} minutes ahead of Redis'"
        if not hint:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.error(
                "clock.not_trusted",
                now_ms=now_ms,
                reason=f"this worker's clock is not trusted: {hint}",
                hint="synchronise the clocks of this host and of that of Redis (NTP; `headstart "
                "doctor` compares them); until then nothing expires in this worker's partitions",
            )
        return not hint

    async def _redis_ms(self, now_ms: int) -> int:
        try:
            answer = await self._ask()
        except ConnectionError:
            if self._zero_ms is None:
                return now_ms
        else:
            self._zero_ms = answer - self._running_s() * 1000.0
        return int(self._zero_ms + self._running_s() * 1000.0)
