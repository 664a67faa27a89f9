"""Cancellations of guessed calls, which are sent to the server in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

CANCELLED: Final = "notifications/cancelled"


def cancellation(request_id: str) -> Mapping[str, Any]:
    """Return the parameters of the notification that cancels a guessed call."""
    return {"requestId": request_id, "reason": "the guess was wrong"}


class Cancellations:
    """Those that are being sent. Failures are ignored: the server has ended."""

    def __init__(self) -> None:
        self._sending: set[asyncio.Task[Any]] = set()

    def send(self, sending: Coroutine[Any, Any, object]) -> None:
        """Run `sending` without waiting for it."""
        task = asyncio.ensure_future(sending)
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[Any]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # or asyncio would log it
