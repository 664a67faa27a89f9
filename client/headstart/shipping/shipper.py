"""Ships the spools of a directory: reads them, hands events to a sender per target, releases.

Whoever runs this holds the directory's lock (`ship.lock`): it may be a thread, a shared process
or the command `headstart ship`. Spools whose process has died are drained and removed. A spool that
has lately had events is read at every look; the others wait to be rung for, and are looked at the
more rarely the longer they have been silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from headstart.codecs import Compression
from headstart.shipping.retention import Retention
from headstart.shipping.sender import Sender
from headstart.shipping.volatile_broker import EVENTS
from headstart.shipping.wakeup import QUIET_MS, WakeupPipe
from headstart.spool.layout import NEW, QUARANTINE, SPOOL_FILE, SpoolTarget
from headstart.spool.locks import is_current
from headstart.spool.reader import SpoolReader, UnreadableSpool

log = logging.getLogger("headstart")

MAX_AGE_S: Final = 3 * 86_400.0
"""Older events are quarantined: receivers remember a spool's positions for 14 days."""
WAITING_BYTES: Final = 16 << 20
"""Most bytes of events read and not acknowledged, per target; the rest waits on disk."""
ATTEND_S: Final = 0.1
"""How often it looks for processes that died, and at spools that nobody rang for."""
ATTEND_IDLE_S: Final = 5.0
"""The same at most, for a spool in which nothing happens."""
LIVELY_S: Final = 2.5 * QUIET_MS / 1000
"""A spool is read at every look for so long after its last event: longer than its process may be
silent without ringing again."""
LIST_S: Final = 1.0
"""How often the directory is listed even where its time has not changed."""
UNFINISHED_S: Final = 60.0
"""Age of a half-made spool that nobody is making any more."""
ACTIVE_S: Final = 0.002
"""Least pause between two looks while events flow; else it is the shortest linger, so that what is
read goes out at once."""
LOOKING: Final = 0.2
"""Share of the time that looks may take, as long as that puts them off by no more than a pause."""
BLOCKED_S: Final = 0.02
"""Pause between two looks while nothing more may be read."""


_Address = tuple[str, str, Compression | None, str]
"""What a sender is for: broker, topic, compression, client id."""


@dataclass(slots=True)
class _Watched:
    """A spool and when to look at it, in seconds of the monotonic clock."""

    backlog: SpoolReader
    lively_until: float
    attend_at: float
    every_s: float = ATTEND_S


class Shipper:
    """Ships everything in one directory of spools."""

    def __init__(
        self,
        directory: Path,
        *,
        kafka: str | None = None,
        lock: int | None = None,
        max_age_s: float = MAX_AGE_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`kafka`: send there, wherever the spools' emitters meant (a broker that has moved).

        `lock`: the directory's, which is held; should its file be replaced, `run` ends.
        """
        self.directory = directory
        self.displaced = False
        self.lost = 0
        self._kafka, self._max_age_s, self._now_ms = kafka, max_age_s, now_ms
        self._lock = lock
        self._bell = WakeupPipe(directory)
        self._rung = asyncio.Event()
        self._watched: dict[str, _Watched] = {}
        self._lively: dict[str, _Watched] = {}
        self._unreadable: set[str] = set()
        self._senders: dict[_Address, Sender] = {}
        self._retentions: dict[_Address, Retention] = {}
        self._rounded = self._listed = self._moved = 0.0
        self._pause_s = ACTIVE_S
        self._blocked = False
        self._changed_ns = -1

    @property
    def spools(self) -> int:
        """How many spools there are, of the living and of the dead."""
        return len(self._watched)

    @property
    def unsent(self) -> int:
        """How many spools are not through; others may keep what no worker has taken in yet."""
        return sum(not watched.backlog.through for watched in self._watched.values())

    @property
    def known(self) -> set[str]:
        """The names of all spools that it has met and that are left, readable or not."""
        return self._watched.keys() | self._unreadable

    @property
    def living(self) -> bool:
        """Whether any of their processes runs."""
        return any(watched.backlog.living for watched in self._watched.values())

    @property
    def idle_s(self) -> float:
        """Seconds since an event was read or a spool came or went; it counts from `run`."""
        return time.monotonic() - self._moved

    async def run(self, enough: Callable[[], bool]) -> None:
        """Ship until `enough()`, which is asked several times a second, or until `displaced`."""
        self._moved = time.monotonic()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._bell.pipe, self._hear)
        try:
            while not self.displaced:
                begun = loop.time()
                moved = self._look()
                await self._pause(moved, loop.time() - begun)
                if enough():
                    self._tidy()
                    return
        finally:
            loop.remove_reader(self._bell.pipe)
            self._bell.wakes()
            for retention in self._retentions.values():
                await retention.close()
            for sender in self._senders.values():
                await sender.close()
            self.close()

    def _tidy(self) -> None:
        """Remove what has come to its end since the last look."""
        self._find_spools()
        for _ in range(2):
            for watched in list(self._watched.values()):
                self._attend(watched)

    async def _pause(self, moved: bool, looked_s: float) -> None:
        """Wait for the next look, after one that took `looked_s` seconds."""
        if moved:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(_until_next(now, self._pause_s, looked_s))
            return
        if self._blocked:  # an emitter has nothing to tell that could help
            await asyncio.sleep(BLOCKED_S)
            return
        self._hear()
        self._rung.clear()
        self._bell.sleeps()
        if not self._look():  # what came before we asked to be woken
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), ATTEND_S)
        self._bell.wakes()

    def _hear(self) -> None:
        """Take those who rang to be lively."""
        self._rung.set()
        names = self._bell.heard()
        if not names <= self._watched.keys():
            self._find_spools()
        for name in names & self._watched.keys():
            self._enliven(self._watched[name])

    def _enliven(self, watched: _Watched) -> None:
        now = time.monotonic()
        watched.lively_until, watched.every_s = now + LIVELY_S, ATTEND_S
        watched.attend_at = min(watched.attend_at, now + ATTEND_S)
        self._lively[watched.backlog.name] = watched

    def _look(self) -> bool:
        """Read every lively spool once, and others by turns; return whether there was anything."""
        moved = self._blocked = False
        if time.monotonic() - self._rounded > ATTEND_S:
            moved = self._go_round()
        elif os.stat(self.directory).st_mtime_ns != self._changed_ns:
            self._find_spools()
        now = time.monotonic()
        for watched in list(self._lively.values()):
            if self._read(watched):
                moved = True
            elif now > watched.lively_until:
                self._lively.pop(watched.backlog.name, None)
        if moved:
            self._moved = time.monotonic()
        return moved

    def _go_round(self) -> bool:
        """Look at what may have changed without anybody telling; return whether events came."""
        self._rounded = now = time.monotonic()
        if self._lock is not None and not is_current(self.directory, self._lock):
            if not self.displaced:
                log.warning("%s/ship.lock was deleted: who ships locks it anew", self.directory)
            self.displaced = True
            return False
        for sender in self._senders.values():
            sender.check()
        for retention in self._retentions.values():
            retention.look()
        if not self._bell.in_place():
            self._hang_bell()
        if now - self._listed > LIST_S or os.stat(self.directory).st_mtime_ns != self._changed_ns:
            self._find_spools()
        moved = False
        for watched in list(self._watched.values()):
            if now >= watched.attend_at or watched.backlog.finished:
                moved = self._attend(watched) or moved
        lingers = [each.backlog.target.linger_s for each in self._lively.values()]
        self._pause_s = min(ATTEND_S, max(ACTIVE_S, min(lingers, default=0.0)))
        return moved

    def _hang_bell(self) -> None:
        """Listen where emitters ring from now on."""
        loop = asyncio.get_running_loop()
        bell = WakeupPipe(self.directory)
        loop.remove_reader(self._bell.pipe)
        self._bell.close()
        self._bell = bell
        loop.add_reader(bell.pipe, self._hear)

    def _read(self, watched: _Watched) -> bool:
        """Hand over the next events of a spool; return whether there were any."""
        backlog = watched.backlog
        sender = self._sender(backlog.target)
        if sender.waiting_bytes > WAITING_BYTES:
            self._blocked = True
            self._enliven(watched)  # to be read when there is room again
            return False
        try:
            items = backlog.read()
        except OSError as error:
            self._forget(backlog)  # taken up again when the directory is listed
            backlog.close()
            self._say_unreadable(backlog.name, error)
            return False
        linger_s = backlog.target.linger_s
        if linger_s <= self._pause_s:
            linger_s = 0.0  # they have lingered in the spool
        for item in items:
            sender.add(item.key, item.event, item.chunk, linger_s)
        if items:
            self._enliven(watched)
        return bool(items)

    def _sender(self, target: SpoolTarget) -> Sender:
        address = self._address(target)
        if address not in self._senders:
            retention = Retention(address[0], partial(self._backlogs, address), self._read_again)
            on_link = retention.note_link if target.topic == EVENTS else None
            sender = Sender(*address, where=f"in {self.directory}", on_link=on_link)
            retention.sender = self._senders[address] = sender
            self._retentions[address] = retention
        return self._senders[address]

    def _address(self, target: SpoolTarget) -> _Address:
        return self._kafka or target.kafka, target.topic, target.compression, target.client_id

    def _backlogs(self, address: _Address) -> list[SpoolReader]:
        found = (watched.backlog for watched in self._watched.values())
        return [each for each in found if self._address(each.target) == address]

    def _read_again(self, backlog: SpoolReader) -> None:
        self._moved = time.monotonic()
        self._enliven(self._watched[backlog.name])

    def _find_spools(self) -> None:
        """Take up spools that are new."""
        self._changed_ns = os.stat(self.directory).st_mtime_ns
        self._listed = time.monotonic()
        with os.scandir(self.directory) as entries:
            for entry in entries:
                name = entry.name
                if name in self._watched or name == QUARANTINE or not entry.is_dir():
                    continue
                if name.startswith(NEW):
                    _remove_unfinished(Path(entry.path))
                else:
                    self._take_up(Path(entry.path))

    def _attend(self, watched: _Watched) -> bool:
        """Look whether its process has died, read it, and remove it where it is through.

        Return whether there were events. Where there were none, the next time is later.
        """
        backlog = watched.backlog
        backlog.attend()
        moved = self._read(watched)
        if backlog.name not in self._watched:
            return False
        if backlog.finished:
            self._forget(backlog)
            self._remove(backlog)
            self._moved = time.monotonic()
        elif not moved:
            later_s = min(2 * watched.every_s, ATTEND_IDLE_S)
            watched.every_s = ATTEND_S if backlog.doubtful else later_s
        watched.attend_at = time.monotonic() + watched.every_s
        return moved

    def _forget(self, backlog: SpoolReader) -> None:
        del self._watched[backlog.name]
        self._lively.pop(backlog.name, None)

    def _take_up(self, folder: Path) -> None:
        try:
            backlog = SpoolReader(folder, self._max_age_s, self._now_ms, self._count_lost)
        except UnreadableSpool as error:
            self._say_unreadable(folder.name, error)
            return
        retention = self._retentions.get(self._address(backlog.target))
        if retention is not None:
            retention.add(backlog)
        now = self._moved = time.monotonic()
        watched = self._watched[folder.name] = _Watched(backlog, now + LIVELY_S, now)
        self._lively[folder.name] = watched

    def _count_lost(self, events: int) -> None:
        self.lost += events

    def _say_unreadable(self, name: str, error: Exception) -> None:
        if name not in self._unreadable:
            self._unreadable.add(name)
            log.error("the spool %s cannot be read, and is left where it is: %s", name, error)

    def _remove(self, backlog: SpoolReader) -> None:
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
        for watched in self._watched.values():
            watched.backlog.close()
        self._watched.clear()
        self._lively.clear()


def _until_next(now: float, pause_s: float, looked_s: float) -> float:
    """Return how long to wait at `now`, of any clock, after a look that took `looked_s`.

    Until the next multiple of `pause_s`, as every shipper of the host does: one that sends wakes
    the broker, and whoever waits there. Where looks would take more than `LOOKING` of the time,
    because there are many spools or others have the processor, they are put off, by a pause at the
    most: fewer, fuller frames.
    """
    period_s = min(looked_s / LOOKING, 2.0 * pause_s)
    if period_s <= pause_s:
        return pause_s - now % pause_s
    return max(ACTIVE_S, period_s - looked_s)


def _remove_unfinished(folder: Path) -> None:
    """Remove a spool whose process died before it was made, and so before any event."""
    try:
        if time.time() - folder.stat().st_mtime < UNFINISHED_S:
            return
        lock = os.open(folder / SPOOL_FILE, os.O_RDWR)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return
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
