"""Ends a process whose event loop stalled for so long that others may own its partitions.

A worker that was stopped (SIGSTOP, a frozen machine) and wakes up must not write: its group has
reassigned its partitions. Kafka fences its commits, not its produces.
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

from agents.fatal import exit_fatally

SESSION_TIMEOUT_S: Final = 10.0
"""How long the group waits for a heartbeat before it reassigns a member's partitions."""
HEARTBEAT_S: Final = 0.5
"""Also how late a member learns of a rebalance, which waits for all members."""
MAX_STALL_S: Final = SESSION_TIMEOUT_S - 3.0
"""The last heartbeat may be an interval older than the stall; it may have taken long, or failed."""
_BEAT_S: Final = 0.25


class EventLoopStalled(RuntimeError):
    """The event loop stood still beyond the session timeout."""


class StallGuard:
    """Notices a stall of the event loop before anything else runs."""

    def __init__(self) -> None:
        self._last = running_s()

    def start(self) -> asyncio.Task[None]:
        """Record that the loop runs, until cancelled. Call from the main thread."""
        # Python runs a signal's handler before any callback of the loop.
        signal.signal(signal.SIGCONT, lambda *_: self.check())
        self._last = running_s()
        return asyncio.create_task(self._beat())

    def check(self) -> None:
        """End the process if the loop did not run for `MAX_STALL_S`; call before writing."""
        stalled = running_s() - self._last
        if stalled > MAX_STALL_S:
            exit_fatally(
                "loop", EventLoopStalled(f"the event loop stood still for {stalled:.1f} s")
            )

    async def _beat(self) -> None:
        while True:
            self.check()
            self._last = running_s()
            await asyncio.sleep(_BEAT_S)


def running_s() -> float:
    """Return a monotonic clock that also runs while the machine sleeps, in seconds."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
