"""Waits until the broker has acknowledged all events: in a thread, or in an event loop."""

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
"""First and longest pause of `aflush`, in seconds."""
BLOCKED_S: Final = 1.0
"""Seconds from which a blocked event loop is warned of."""


class NotDelivered(TimeoutError):
    """`flush()` or `close()` ended with events that the broker has not acknowledged."""


class Flushing:
    """Waits for the events of a buffer. `kafka`: for messages."""

    def __init__(self, buffer: EventBuffer, kafka: str) -> None:
        self._buffer, self._kafka = buffer, kafka
        self._lost = 0

    def flush(self, timeout_s: float) -> None:
        """Wait for every event emitted so far. Raises `NotDelivered`."""
        begun = time.monotonic()
        target = self._buffer.emitted
        try:
            while (left := self._remaining_s(target, begun + timeout_s)) > 0.0:
                self._wait(target, left)
        finally:
            _warn_if_blocking(time.monotonic() - begun)
        self._raise_if_lost()

    async def aflush(self, timeout_s: float) -> None:
        """Wait for every event emitted so far, without blocking the event loop."""
        import asyncio  # not at the top: the threaded client does without

        deadline = time.monotonic() + timeout_s
        target, pause_s = self._buffer.emitted, PAUSE_S
        while (left := self._remaining_s(target, deadline)) > 0.0:
            self._wait(target, 0.0)
            await asyncio.sleep(min(left, pause_s))
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
        self._raise_if_lost()

    def _remaining_s(self, target: int, deadline: float) -> float:
        """Return the seconds left to wait; 0 if `target` events are settled.

        Raises `NotDelivered` if no time is left.
        """
        settled = self._buffer.progress().settled
        if settled >= target:
            return 0.0
        left = deadline - time.monotonic()
        if left > 0.0:
            return left
        raise self._not_delivered(settled, target)

    def _wait(self, target: int, wait_s: float) -> None:
        """Wait for progress. Raises `NotDelivered` if sending has ended."""
        try:
            self._buffer.wait(wait_s)
        except Exception as failure:
            settled = self._buffer.progress().settled
            raise self._not_delivered(settled, target) from failure

    def _not_delivered(self, settled: int, target: int) -> NotDelivered:
        """Return the error about the positions from `settled` to `target`."""
        dropped = self._buffer.dropped_between(settled, target)
        more = f"; {dropped:,} more were dropped at the limit" if dropped else ""
        return NotDelivered(
            f"{target - settled - dropped} events are not acknowledged by the broker at "
            f"{self._kafka}; they wait {self._buffer.where}{more}"
        )

    def _raise_if_lost(self) -> None:
        lost = self._buffer.progress().lost
        if lost > self._lost:
            new, self._lost = lost - self._lost, lost
            raise NotDelivered(f"{new} events were lost; see the log, and {self._buffer.where}")


def _warn_if_blocking(seconds: float) -> None:
    """Warn if this blocked an event loop for so long."""
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
