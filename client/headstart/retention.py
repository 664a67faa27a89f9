"""Keeps acknowledged events in their spools until no broker can lose them: see decision 0026.

A mark is drawn now and then: how far each spool was acknowledged, and where the log ended then.
Once both consumer groups have committed offsets behind that end, what the mark covers is taken in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from headstart.backlog import Backlog
from headstart.sending import Sender

log = logging.getLogger("headstart")

ASK_S: Final = 0.5
"""How often the broker is asked what is taken in, while something is kept."""
RETAINED_BYTES: Final = 256 << 20
"""Most bytes of whole segments kept per sender; beyond, the oldest are given up, and said."""
_SAY_EVERY_S: Final = 60.0


@dataclass(frozen=True)
class _Mark:
    """How far each spool was acknowledged, when the log ended there."""

    sent: dict[Backlog, int]
    ends: dict[int, int]


class Retention:
    """What the spools of one sender keep."""

    def __init__(self, sender: Sender, backlogs: Callable[[], Collection[Backlog]]) -> None:
        """`backlogs`: those whose events go through `sender`, now."""
        self._sender, self._backlogs = sender, backlogs
        self._mark: _Mark | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked = self._said = -_SAY_EVERY_S
        self._given_up = 0

    def forget(self) -> None:
        """Begin anew: the log is another one, what was acknowledged in the last one is lost."""
        self._mark = None

    def look(self) -> None:
        """Ask what is taken in, if it is time and something is kept. Called often."""
        now = time.monotonic()
        if now - self._asked < ASK_S or (self._task is not None and not self._task.done()):
            return
        kept = [each for each in self._backlogs() if each.retained]
        if kept:
            self._asked = now
            self._limit(kept)
            self._task = asyncio.get_running_loop().create_task(self._ask(kept))

    async def _ask(self, kept: Collection[Backlog]) -> None:
        if self._mark is None:
            self._mark = _Mark({each: each.sent for each in kept}, dict(self._sender.ends))
        mark = self._mark
        committed = await self._sender.committed()
        if committed is None or mark is not self._mark:
            return
        for partition, end in mark.ends.items():
            if any(offsets.get(partition, 0) < end for offsets in committed.values()):
                return
        self._mark = None
        present = self._backlogs()
        for backlog, sent in mark.sent.items():
            if backlog in present:
                backlog.take_in(sent)

    def _limit(self, kept: Collection[Backlog]) -> None:
        over = sum(each.retained_bytes for each in kept) - RETAINED_BYTES
        for backlog in kept:
            while over > 0 and (count := backlog.give_up_oldest()):
                self._given_up += count
                over = sum(each.retained_bytes for each in kept) - RETAINED_BYTES
        if self._given_up and time.monotonic() - self._said > _SAY_EVERY_S:
            log.warning(
                "%d acknowledged events are not kept any more, because no worker takes them in: "
                "they are lost if the embedded broker ends before one does",
                self._given_up,
            )
            self._said, self._given_up = time.monotonic(), 0

    async def close(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
