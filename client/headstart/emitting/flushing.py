"""Waits until the broker has what an emitter emitted: in a thread, or in an event loop."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from typing import Final

from headstart.emitting.buffer import EventBuffer

log = logging.getLogger("headstart")

PAUSE_S: Final = 0.0005
LONGEST_PAUSE_S: Final = 0.01
"""Seconds between two looks of `aflush`, the first and the longest."""
BLOCKED_S: Final = 1.0
"""From how many seconds on it is said that an event loop was blocked."""


class NotDelivered(TimeoutError):
    """`flush()` or `close()` ended with events that the broker has not acknowledged."""


class Flushing:
    """What has become of an outbox's events, for those who wait for it. `kafka`: for messages."""

    def __init__(self, outbox: EventBuffer, kafka: str) -> None:
        self._outbox, self._kafka = outbox, kafka
        self._lost = 0

    def flush(self, timeout_s: float) -> None:
        """Wait for every event emitted so far. Raises `NotDelivered`."""
        begun = time.monotonic()
        target = self._outbox.emitted
        try:
            while (left := self._left(target, begun + timeout_s)) > 0.0:
                self._look(target, left)
        finally:
            _warn_if_blocking(time.monotonic() - begun)
        self._refuse_losses()

    async def aflush(self, timeout_s: float) -> None:
        """Wait for every event emitted so far, without blocking the event loop."""
        import asyncio  # which is there where this is awaited, and nowhere else is needed

        deadline = time.monotonic() + timeout_s
        target, pause_s = self._outbox.emitted, PAUSE_S
        while (left := self._left(target, deadline)) > 0.0:
            self._look(target, 0.0)
            await asyncio.sleep(min(left, pause_s))
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
        self._refuse_losses()

    def _left(self, target: int, deadline: float) -> float:
        """Return the seconds that are left to wait; 0 where the broker has `target` events.

        Raises `NotDelivered` where no time is left.
        """
        settled = self._outbox.progress().settled
        if settled >= target:
            return 0.0
        left = deadline - time.monotonic()
        if left > 0.0:
            return left
        raise self._not_delivered(settled, target)

    def _look(self, target: int, wait_s: float) -> None:
        """Wait for progress; what ended the sending is raised as `NotDelivered`."""
        try:
            self._outbox.wait(wait_s)
        except Exception as failure:
            settled = self._outbox.progress().settled
            raise self._not_delivered(settled, target) from failure

    def _not_delivered(self, settled: int, target: int) -> NotDelivered:
        """Return what to raise for the positions from `settled` to `target`."""
        dropped = self._outbox.dropped_between(settled, target)
        more = f"; {dropped:,} more were dropped at the limit" if dropped else ""
        return NotDelivered(
            f"{target - settled - dropped} events are not acknowledged by the broker at "
            f"{self._kafka}; they wait {self._outbox.where}{more}"
        )

    def _refuse_losses(self) -> None:
        lost = self._outbox.progress().lost
        if lost > self._lost:
            new, self._lost = lost - self._lost, lost
            raise NotDelivered(f"{new} events were given up; see the log, and {self._outbox.where}")


def _warn_if_blocking(seconds: float) -> None:
    """Say in the log that an event loop stood still for so long, if it did."""
    asyncio = sys.modules.get("asyncio")
    if seconds < BLOCKED_S or asyncio is None:
        return
    with contextlib.suppress(RuntimeError):  # no loop runs here
        asyncio.get_running_loop()
        log.warning(
            "flush() or close() has blocked the event loop for %.1f s: in async code use "
            "`async with` for emitters and workflows, or await aflush() or aclose()",
            seconds,
        )
