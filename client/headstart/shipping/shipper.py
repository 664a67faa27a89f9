"""Ships the spools of a directory: reads them, sends their events to each target, removes them.

The caller holds the directory's lock (`ship.lock`): a thread, the shared process, or the command
`headstart ship`. Spools whose process has died are drained and removed. A recently active spool is
read at every poll. The process of an idle spool wakes the shipper through a pipe; idle spools are
polled too, the more rarely the longer they are idle.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from headstart.spool.layout import NEW, QUARANTINE, SpoolTarget, remove_unfinished
from headstart.spool.locks import is_current
from headstart.spool.reader import SpoolReader, UnreadableSpool

log = logging.getLogger("headstart")

MAX_AGE_S: Final = 3 * 86_400.0
"""Older events are quarantined: receivers remember a spool's positions for 14 days."""
WAITING_BYTES: Final = 16 << 20
"""Most bytes of events read but not acknowledged, per target; the rest waits on disk."""
CHECK_S: Final = 0.1
"""Seconds between checks of a spool for a dead process or events without a wake-up."""
CHECK_IDLE_S: Final = 5.0
"""The longest interval of these checks, for an idle spool."""
ACTIVE_S: Final = 2.5 * QUIET_MS / 1000
"""A spool is read at every poll for so long after its last event: longer than its process may be
idle without writing to the pipe again."""
LIST_S: Final = 1.0
"""Seconds between listings of the directory even if its mtime has not changed."""
LEAST_PAUSE_S: Final = 0.002
"""Least pause between polls while events flow; else it is the shortest linger, so that events
that were read are sent at once."""
POLL_SHARE: Final = 0.2
"""Share of the time that polls may take, unless that delays them by more than a pause."""
BLOCKED_S: Final = 0.02
"""Pause between polls while `WAITING_BYTES` is reached."""


_Address = tuple[str, str, Compression | None, str, str | None]
"""The target of a sender: broker, topic, compression, client id, profile of the security."""


@dataclass(slots=True)
class _WatchedSpool:
    """A spool, and when to read and check it, in seconds of the monotonic clock."""

    reader: SpoolReader
    active_until: float
    check_at: float
    interval_s: float = CHECK_S


class Shipper:
    """Ships everything in one directory of spools."""

    def __init__(
        self,
        directory: Path,
        *,
        kafka: str | None = None,
        own_security: bool = False,
        lock: int | None = None,
        max_age_s: float = MAX_AGE_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`kafka`: send there instead of the spools' own targets (a broker that has moved).

        `own_security`: connect with this process's security instead of that which the spools name,
        as also with `kafka`.

        `lock`: the held lock of the directory; if its file is replaced, `run` ends.
        """
        self.directory = directory
        self.displaced = False
        self.lost = 0
        self._kafka, self._max_age_s, self._now_ms = kafka, max_age_s, now_ms
        self._lock, self._own_security = lock, own_security
        self._wakeup = WakeupPipe(directory)
        self._woken = asyncio.Event()
        self._spools: dict[str, _WatchedSpool] = {}
        self._active: dict[str, _WatchedSpool] = {}
        self._unreadable: set[str] = set()
        self._senders: dict[_Address, Sender] = {}
        self._retentions: dict[_Address, Retention] = {}
        self._idle_polled_at = self._listed_at = self._progress_at = 0.0
        self._pause_s = LEAST_PAUSE_S
        self._blocked = False
        self._changed_ns = -1

    @property
    def spools(self) -> int:
        """Number of spools, of live and dead processes."""
        return len(self._spools)

    @property
    def unsent(self) -> int:
        """Number of spools that are not drained; others may retain events."""
        return sum(not spool.reader.drained for spool in self._spools.values())

    @property
    def known(self) -> set[str]:
        """Names of all spools that are left, readable or not."""
        return self._spools.keys() | self._unreadable

    @property
    def has_live_writers(self) -> bool:
        """Whether any of their processes is alive."""
        return any(spool.reader.writer_alive for spool in self._spools.values())

    @property
    def idle_s(self) -> float:
        """Seconds since an event was read or a spool was added or reprogressed, or since `run`."""
        return time.monotonic() - self._progress_at

    async def run(self, should_stop: Callable[[], bool]) -> None:
        """Ship until `should_stop()`, called several times a second, or until `displaced`."""
        self._progress_at = time.monotonic()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._wakeup.pipe, self._on_wakeup)
        try:
            while not self.displaced:
                begun = loop.time()
                progressed = self._poll()
                await self._pause(progressed, loop.time() - begun)
                if should_stop():
                    self._remove_finished()
                    return
        finally:
            loop.remove_reader(self._wakeup.pipe)
            self._wakeup.disarm()
            for retention in self._retentions.values():
                await retention.close()
            for sender in self._senders.values():
                await sender.close()
            self.close()

    def _remove_finished(self) -> None:
        """Remove spools that were drained since the last poll."""
        self._find_spools()
        for _ in range(2):
            for spool in list(self._spools.values()):
                self._check_spool(spool)

    async def _pause(self, progressed: bool, polled_s: float) -> None:
        """Wait for the next poll, after one that took `polled_s` seconds."""
        if progressed:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(_poll_delay(now, self._pause_s, polled_s))
            return
        if self._blocked:  # a wake-up would not help
            await asyncio.sleep(BLOCKED_S)
            return
        self._on_wakeup()
        self._woken.clear()
        self._wakeup.arm()
        if not self._poll():  # events appended before `arm`
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), CHECK_S)
        self._wakeup.disarm()

    def _on_wakeup(self) -> None:
        """Activate the spools whose names are in the pipe."""
        self._woken.set()
        names = self._wakeup.read_names()
        if not names <= self._spools.keys():
            self._find_spools()
        for name in names & self._spools.keys():
            self._activate(self._spools[name])

    def _activate(self, spool: _WatchedSpool) -> None:
        now = time.monotonic()
        spool.active_until, spool.interval_s = now + ACTIVE_S, CHECK_S
        spool.check_at = min(spool.check_at, now + CHECK_S)
        self._active[spool.reader.name] = spool

    def _poll(self) -> bool:
        """Read active spools, and idle ones that are due; return whether there were events."""
        progressed = self._blocked = False
        if time.monotonic() - self._idle_polled_at > CHECK_S:
            progressed = self._poll_idle()
        elif os.stat(self.directory).st_mtime_ns != self._changed_ns:
            self._find_spools()
        now = time.monotonic()
        for spool in list(self._active.values()):
            if self._read(spool):
                progressed = True
            elif now > spool.active_until:
                self._active.pop(spool.reader.name, None)
        if progressed:
            self._progress_at = time.monotonic()
        return progressed

    def _poll_idle(self) -> bool:
        """Check what changes without a wake-up; return whether there were events."""
        self._idle_polled_at = now = time.monotonic()
        if self._lock is not None and not is_current(self.directory, self._lock):
            if not self.displaced:
                log.warning(
                    "ship.lock in %s was deleted; releasing and re-acquiring it", self.directory
                )
            self.displaced = True
            return False
        for sender in self._senders.values():
            sender.raise_if_failed()
        for retention in self._retentions.values():
            retention.poll()
        if not self._wakeup.is_current():
            self._reopen_wakeup()
        if (
            now - self._listed_at > LIST_S
            or os.stat(self.directory).st_mtime_ns != self._changed_ns
        ):
            self._find_spools()
        progressed = False
        for spool in list(self._spools.values()):
            if now >= spool.check_at or spool.reader.removable:
                progressed = self._check_spool(spool) or progressed
        lingers = [each.reader.target.linger_s for each in self._active.values()]
        self._pause_s = min(CHECK_S, max(LEAST_PAUSE_S, min(lingers, default=0.0)))
        return progressed

    def _reopen_wakeup(self) -> None:
        """Reopen the pipe after it was replaced."""
        loop = asyncio.get_running_loop()
        wakeup = WakeupPipe(self.directory)
        loop.remove_reader(self._wakeup.pipe)
        self._wakeup.close()
        self._wakeup = wakeup
        loop.add_reader(wakeup.pipe, self._on_wakeup)

    def _read(self, spool: _WatchedSpool) -> bool:
        """Pass the next events of a spool to its sender; return whether there were any."""
        reader = spool.reader
        sender = self._sender(reader.target)
        if sender.waiting_bytes > WAITING_BYTES:
            self._blocked = True
            self._activate(spool)  # read it when there is room again
            return False
        try:
            items = reader.read()
        except OSError as error:
            self._close_spool(reader)  # opened again at the next listing
            reader.close()
            self._log_unreadable(reader.name, error)
            return False
        linger_s = reader.target.linger_s
        if linger_s <= self._pause_s:
            linger_s = 0.0  # they lingered in the spool
        for item in items:
            sender.add(item.key, item.event, item.chunk, linger_s)
        if items:
            self._activate(spool)
        return bool(items)

    def _sender(self, target: SpoolTarget) -> Sender:
        address = self._address(target)
        if address not in self._senders:
            retention = Retention(address[0], partial(self._readers_of, address), self._read_again)
            on_connect = retention.note_connection if target.topic == EVENTS else None
            sender = Sender(
                *address[:4],
                where=f"in {self.directory}",
                profile=address[4],
                on_connect=on_connect,
            )
            retention.sender = self._senders[address] = sender
            self._retentions[address] = retention
        return self._senders[address]

    def _address(self, target: SpoolTarget) -> _Address:
        kafka, profile = self._kafka or target.kafka, target.profile
        is_own = self._kafka is not None or self._own_security
        return (
            kafka, target.topic, target.compression, target.client_id, None if is_own else profile,
        )  # fmt: skip

    def _readers_of(self, address: _Address) -> list[SpoolReader]:
        found = (spool.reader for spool in self._spools.values())
        return [each for each in found if self._address(each.target) == address]

    def _read_again(self, reader: SpoolReader) -> None:
        self._progress_at = time.monotonic()
        self._activate(self._spools[reader.name])

    def _find_spools(self) -> None:
        """Open new spools."""
        self._changed_ns = os.stat(self.directory).st_mtime_ns
        self._listed_at = time.monotonic()
        with os.scandir(self.directory) as entries:
            for entry in entries:
                name = entry.name
                if name in self._spools or name == QUARANTINE or not entry.is_dir():
                    continue
                if name.startswith(NEW):
                    remove_unfinished(Path(entry.path))
                else:
                    self._open_spool(Path(entry.path))

    def _check_spool(self, spool: _WatchedSpool) -> bool:
        """Check whether its process has died, read it, and remove it if that is possible.

        Return whether there were events. If not, the next check is later.
        """
        reader = spool.reader
        reader.check_writer()
        progressed = self._read(spool)
        if reader.name not in self._spools:
            return False
        if reader.removable:
            self._close_spool(reader)
            self._remove(reader)
            self._progress_at = time.monotonic()
        elif not progressed:
            later_s = min(2 * spool.interval_s, CHECK_IDLE_S)
            spool.interval_s = CHECK_S if reader.tail_uncertain else later_s
        spool.check_at = time.monotonic() + spool.interval_s
        return progressed

    def _close_spool(self, reader: SpoolReader) -> None:
        del self._spools[reader.name]
        self._active.pop(reader.name, None)

    def _open_spool(self, folder: Path) -> None:
        try:
            reader = SpoolReader(folder, self._max_age_s, self._now_ms, self._count_lost)
        except UnreadableSpool as error:
            self._log_unreadable(folder.name, error)
            return
        retention = self._retentions.get(self._address(reader.target))
        if retention is not None:
            retention.add(reader)
        now = self._progress_at = time.monotonic()
        spool = self._spools[folder.name] = _WatchedSpool(reader, now + ACTIVE_S, now)
        self._active[folder.name] = spool

    def _count_lost(self, events: int) -> None:
        self.lost += events

    def _log_unreadable(self, name: str, error: Exception) -> None:
        if name not in self._unreadable:
            self._unreadable.add(name)
            log.error("cannot read the spool %s, leaving it in place: %s", name, error)

    def _remove(self, reader: SpoolReader) -> None:
        try:
            reader.remove()
        except OSError as error:
            if reader.name in self._unreadable:
                return
            self._unreadable.add(reader.name)
            log.warning("cannot remove the drained spool %s: %s", reader.folder, error)

    def close(self) -> None:
        """Close all files. Idempotent."""
        self._wakeup.close()
        for spool in self._spools.values():
            spool.reader.close()
        self._spools.clear()
        self._active.clear()


def _poll_delay(now: float, pause_s: float, polled_s: float) -> float:
    """Return the seconds to wait at `now`, of any clock, after a poll that took `polled_s`.

    That is until the next multiple of `pause_s`, so that all shippers of the host send together:
    each request wakes the broker and its consumers. If polls would take more than `POLL_SHARE` of
    the time, because of many spools or a busy processor, they are delayed by at most one pause,
    which makes fewer, fuller frames.
    """
    period_s = min(polled_s / POLL_SHARE, 2.0 * pause_s)
    if period_s <= pause_s:
        return pause_s - now % pause_s
    return max(LEAST_PAUSE_S, period_s - polled_s)
