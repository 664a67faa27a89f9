"""Ships the spools of a directory: reads them, hands events to a sender per target, releases.

Whoever runs this holds the directory's lock (`ship.lock`): it may be a thread, a shared process
or the command `headstart ship`. Spools whose process has died are drained and removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headstart.backlog import Backlog, Item, Unreadable
from headstart.bell import Bell
from headstart.compression import Compression
from headstart.directory import NEW, QUARANTINE, SPOOL_FILE, Target
from headstart.sending import Sender

log = logging.getLogger("headstart")

MAX_AGE_S: Final = 3 * 86_400.0
"""Older events are quarantined: receivers remember a spool's positions for 14 days."""
WAITING_BYTES: Final = 16 << 20
"""Most bytes of events read and not acknowledged, per target; the rest waits on disk."""
ATTEND_S: Final = 0.1
"""How often it looks for processes that died, and for spools that it was not told of."""
UNFINISHED_S: Final = 60.0
"""Age of a half-made spool that nobody is making any more."""
ACTIVE_S: Final = 0.002
"""Least pause between two looks while events flow."""
_LINGER_SHARE: Final = 0.25
"""Pause as a share of the shortest linger: looks at many spools cost more than all the rest."""


class Shipper:
    """Ships everything in one directory of spools."""

    def __init__(
        self,
        directory: Path,
        *,
        kafka: str | None = None,
        max_age_s: float = MAX_AGE_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`kafka`: send there, wherever the spools' emitters meant (a broker that has moved)."""
        self.directory = directory
        self._kafka, self._max_age_s, self._now_ms = kafka, max_age_s, now_ms
        self._bell = Bell(directory)
        self._rung = asyncio.Event()
        self._backlogs: dict[str, Backlog] = {}
        self._unreadable: set[str] = set()
        self._senders: dict[tuple[str, str, Compression | None], Sender] = {}
        self._attended = self._moved = 0.0
        self._pause_s = ACTIVE_S
        self._changed_ns = -1

    @property
    def spools(self) -> int:
        """How many spools there are, of the living and of the dead."""
        return len(self._backlogs)

    @property
    def living(self) -> bool:
        """Whether any of their processes runs."""
        return any(backlog.living for backlog in self._backlogs.values())

    @property
    def idle_s(self) -> float:
        """Seconds since an event was read or a spool came or went; it counts from `run`."""
        return time.monotonic() - self._moved

    async def run(self, enough: Callable[[], bool]) -> None:
        """Ship until `enough()`, which is asked several times a second."""
        self._moved = time.monotonic()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._bell.pipe, self._rung.set)
        try:
            while True:
                await self._pause(self._look())
                if enough():
                    self._tidy()
                    return
        finally:
            loop.remove_reader(self._bell.pipe)
            self._bell.wakes()
            for sender in self._senders.values():
                await sender.close()
            self.close()

    def _tidy(self) -> None:
        """Remove what has come to its end since the last look."""
        self._attend()
        self._look()
        self._attend()

    async def _pause(self, moved: bool) -> None:
        if moved:
            await asyncio.sleep(self._pause_s)
            return
        self._rung.clear()
        self._bell.wakes()
        self._bell.sleeps()
        if not self._look():  # what came before we asked to be woken
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), ATTEND_S)
        self._bell.wakes()

    def _look(self) -> bool:
        """Read every spool once; return whether there was anything."""
        if time.monotonic() - self._attended > ATTEND_S:
            self._find_spools()
            self._attend()
            self._attended = time.monotonic()
        elif os.stat(self.directory).st_mtime_ns != self._changed_ns:
            self._find_spools()
        moved = False
        for backlog in list(self._backlogs.values()):
            sender = self._sender(backlog.target)
            if sender.waiting_bytes > WAITING_BYTES:
                continue
            items = self._read(backlog)
            for item in items:
                sender.add(item.key, item.event, item.chunk, backlog.target.linger_s)
            moved = moved or bool(items)
        if moved:
            self._moved = time.monotonic()
        return moved

    def _read(self, backlog: Backlog) -> list[Item]:
        try:
            return backlog.read()
        except OSError as error:
            del self._backlogs[backlog.name]  # taken up again at the next look
            backlog.close()
            self._say_unreadable(backlog.name, error)
            return []

    def _sender(self, target: Target) -> Sender:
        address = (self._kafka or target.kafka, target.topic, target.compression)
        if address not in self._senders:
            self._senders[address] = Sender(*address, where=f"in {self.directory}")
        return self._senders[address]

    def _find_spools(self) -> None:
        """Take up spools that are new."""
        self._changed_ns = os.stat(self.directory).st_mtime_ns
        for entry in os.scandir(self.directory):
            if entry.name in self._backlogs or entry.name == QUARANTINE or not entry.is_dir():
                continue
            if entry.name.startswith(NEW):
                _remove_unfinished(Path(entry.path))
            else:
                self._take_up(Path(entry.path))

    def _attend(self) -> None:
        """Look which processes have died, and remove what is through."""
        for name, backlog in list(self._backlogs.items()):
            backlog.attend()
            if backlog.finished:
                del self._backlogs[name]
                self._remove(backlog)
                self._moved = time.monotonic()
        lingers = [backlog.target.linger_s for backlog in self._backlogs.values()]
        self._pause_s = max(ACTIVE_S, _LINGER_SHARE * min(lingers, default=0.0))

    def _take_up(self, folder: Path) -> None:
        try:
            self._backlogs[folder.name] = Backlog(folder, self._max_age_s, self._now_ms)
            self._moved = time.monotonic()
        except Unreadable as error:
            self._say_unreadable(folder.name, error)

    def _say_unreadable(self, name: str, error: Exception) -> None:
        if name not in self._unreadable:
            self._unreadable.add(name)
            log.error("the spool %s cannot be read, and is left where it is: %s", name, error)

    def _remove(self, backlog: Backlog) -> None:
        try:
            backlog.remove()
        except OSError as error:
            if backlog.name in self._unreadable:
                return
            self._unreadable.add(backlog.name)
            log.warning("cannot remove the spool %s, which is through: %s", backlog.folder, error)

    def close(self) -> None:
        """Let go of every file, without a word to the broker. Twice is harmless."""
        self._bell.close()
        for backlog in self._backlogs.values():
            backlog.close()
        self._backlogs.clear()


def _remove_unfinished(folder: Path) -> None:
    """Remove a spool whose process died before it was made, and so before any event."""
    try:
        if time.time() - folder.stat().st_mtime < UNFINISHED_S:
            return
        lock = os.open(folder / SPOOL_FILE, os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
    except OSError:
        return
    finally:
        os.close(lock)
