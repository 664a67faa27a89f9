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

from headstart.shipping.sender import Sender
from headstart.spool.reader import SpoolReader

log = logging.getLogger("headstart")

ASK_S: Final = 0.5
"""How often the broker is asked what is taken in, while something is kept."""
RETAINED_BYTES: Final = 256 << 20
"""Most bytes of whole segments kept per sender; beyond, the oldest are given up, and said."""
_SAY_EVERY_S: Final = 60.0


@dataclass(frozen=True)
class _Mark:
    """How far each spool was acknowledged, when the log ended there."""

    sent: dict[SpoolReader, int]
    ends: dict[int, int]


class Retention:
    """What the spools of one sender keep; `sender` is set before it links."""

    sender: Sender

    def __init__(
        self,
        kafka: str,
        backlogs: Callable[[], Collection[SpoolReader]],
        read_again: Callable[[SpoolReader], None],
    ) -> None:
        """`kafka`: for the log. `backlogs`: those whose events go through the sender, now.

        `read_again`: told of each that has been rewound.
        """
        self._kafka, self._backlogs, self._read_again = kafka, backlogs, read_again
        self._volatile = False
        self._mark: _Mark | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked = self._said = -_SAY_EVERY_S
        self._given_up = 0
        self._unkept: set[SpoolReader] = set()

    def note_link(self, volatile: bool, lost: bool) -> None:
        """Keep what a broker that forgets acknowledges; read again what such a one has lost.

        See `headstart.shipping.sender.OnLink`.
        """
        self._volatile = volatile
        again = 0
        for backlog in self._backlogs():
            if lost:
                again += backlog.rewind()
                self._read_again(backlog)
            self._retain(backlog)
        if lost:
            self._mark = None
            log.warning(
                "the broker at %s has another log than before: %d events that it had acknowledged, "
                "and that were not known to be taken in, are read again and sent; those that are "
                "too old for that, or that are not there any more, are counted as lost",
                self._kafka,
                again,
            )

    def add(self, backlog: SpoolReader) -> None:
        """Keep what is acknowledged of a spool that is new here, where that is to be kept."""
        if self._volatile:
            self._retain(backlog)

    def _retain(self, backlog: SpoolReader) -> None:
        try:
            backlog.retain(keep=self._volatile)
        except OSError as error:
            if backlog not in self._unkept:
                log.warning(
                    "%s keeps nothing that is acknowledged, until its disk takes a mark: %s",
                    backlog.folder,
                    error,
                )
            self._unkept.add(backlog)
        else:
            if backlog in self._unkept:
                log.info("%s keeps what is acknowledged from now on", backlog.folder)
            self._unkept.discard(backlog)

    def look(self) -> None:
        """Ask what is taken in, if it is time and something is kept. Called often."""
        if not self._volatile:
            return
        now = time.monotonic()
        if now - self._asked < ASK_S or (self._task is not None and not self._task.done()):
            return
        present = self._backlogs()
        self._unkept.intersection_update(present)
        for backlog in list(self._unkept):  # its disk was full, for one
            self._asked = now
            self._retain(backlog)
        kept = [each for each in present if each.retained]
        if kept:
            self._asked = now
            self._limit(kept)
            self._task = asyncio.get_running_loop().create_task(self._ask(kept))

    async def _ask(self, kept: Collection[SpoolReader]) -> None:
        if self._mark is None:
            self._mark = _Mark({each: each.marks.sent for each in kept}, dict(self.sender.ends))
        mark = self._mark
        committed = await self.sender.committed()
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

    def _limit(self, kept: Collection[SpoolReader]) -> None:
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
