"""Buffers events on disk: appends them to this process's spool, which a shipper sends."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from weakref import WeakSet

from headstart.emitting.buffer import origin_prefix, with_origin
from headstart.events.schema import new_id
from headstart.shipping.supervisor import Mode, ShipperSupervisor, shipper_supervisor
from headstart.shipping.wakeup import QUIET_MS, WakeupPipe
from headstart.spool.layout import Progress, SpoolTarget
from headstart.spool.settings import BufferFull, SpoolSettings
from headstart.spool.writer import SpoolWriter

log = logging.getLogger("headstart")

_LOG_INTERVAL_S = 60.0
_FULL_POLL_S = 0.005
_CHECK_MS = 10_000
EXIT_S = 5.0
"""Seconds that an exiting process waits for its own shipping thread."""


class DiskBuffer:
    """A buffer that survives its process. The first event creates the spool."""

    def __init__(self, target: SpoolTarget, settings: SpoolSettings, mode: Mode) -> None:
        self._target, self._settings, self._mode = target, settings, mode
        self.where = f"in {settings.directory}"
        self._stopped = False
        self._begin()

    def _begin(self) -> None:
        self._take_id()
        self._spool: SpoolWriter | None = None
        self._wakeup: WakeupPipe | None = None
        self._supervisor: ShipperSupervisor | None = None
        self._last = Progress()
        self._logged_at = -_LOG_INTERVAL_S
        self._unreported = 0
        self._pause_s = 0.0005
        self._put_ms = self._checked_ms = 0

    def _take_id(self) -> None:
        self.id = new_id()
        self._prefix = origin_prefix(self.id)

    @property
    def emitted(self) -> int:
        """Number of events accepted, which is the next position."""
        return 0 if self._spool is None else self._spool.next

    @property
    def dropped(self) -> int:
        """Number of events dropped at the limit; those already read may still arrive."""
        return 0 if self._spool is None else self._spool.dropped

    def dropped_between(self, first: int, end: int) -> int:
        """Return how many of these positions were dropped; an upper bound, as `dropped`."""
        return 0 if self._spool is None else self._spool.dropped_between(first, end)

    def put(self, key: bytes, body: bytes, now_ms: int) -> None:
        """Append one event to the spool, and wake the shipper."""
        spool = self._spool or self._open()
        event = with_origin(body, self._prefix, spool.next)
        while not spool.append(key, event, now_ms):
            self._make_room(spool)
        idle_ms, self._put_ms = now_ms - self._put_ms, now_ms
        if self._wakeup is not None:
            if 0 <= idle_ms < QUIET_MS:
                self._wakeup.wake()
            else:
                self._notify(self._wakeup, now_ms)

    def _notify(self, wakeup: WakeupPipe, now_ms: int) -> None:
        """Wake the shipper after an idle period; reopen the pipe if it was replaced."""
        if not 0 <= now_ms - self._checked_ms < _CHECK_MS:
            self._checked_ms = now_ms
            if not wakeup.is_current():
                self._wakeup = self._open_wakeup()
                wakeup.close()
                wakeup = self._wakeup or wakeup
        if wakeup.pipe >= 0:
            wakeup.notify()

    def _open_wakeup(self) -> WakeupPipe | None:
        try:
            return WakeupPipe(self._settings.directory, self.id)
        except OSError as error:  # no pipes here: the shipper polls, only later
            log.warning("cannot open the wake-up pipe in %s: %s", self._settings.directory, error)
            return None

    def _open(self) -> SpoolWriter:
        try:
            spool = SpoolWriter(self.id, self._settings, self._target)
            self._wakeup = self._open_wakeup()
            self._supervisor = shipper_supervisor(self._settings.directory, self._mode)
            self._supervisor.join()
        except BaseException:  # the id is used now: the next spool gets another
            self._take_id()
            raise
        self._spool = spool
        _finish_at_exit(self)
        if self._settings.fsync == "interval":
            name = "headstart-fsync"
            thread = threading.Thread(target=self._sync, args=(spool,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process is exiting
                log.warning("%s is not synced at intervals: %s", spool.folder, error)
        return spool

    def _sync(self, spool: SpoolWriter) -> None:
        synced = 0
        while self._spool is spool and not self._stopped:
            time.sleep(self._settings.fsync_s)
            if spool.next > synced:
                synced = spool.next
                try:
                    spool.sync()
                except OSError as error:
                    log.error("cannot sync %s: %s", spool.folder, error)

    def _make_room(self, spool: SpoolWriter) -> None:
        if spool.drop_acknowledged():
            return
        rule, kafka = self._settings.on_full, self._target.kafka
        if rule == "block" and not self._stopped:
            time.sleep(_FULL_POLL_S)
            return
        room, dropped = spool.drop_oldest() if rule == "drop_oldest" else (False, 0)
        if not room:
            raise BufferFull(
                f"the spool {self._settings.directory} has reached its {self._settings.limit_bytes}"
                f" bytes, or its disk is full; is the broker at {kafka} running?"
            )
        self._unreported += dropped
        if self._unreported and time.monotonic() - self._logged_at > _LOG_INTERVAL_S:
            log.error(
                "%d events were dropped: the spool %s is full", self._unreported, spool.folder
            )
            self._logged_at, self._unreported = time.monotonic(), 0

    def progress(self) -> Progress:
        """Return the progress that the shipper stored, whichever process it is."""
        if self._spool is not None:
            found = self._spool.progress()
            if found.settled > self._last.settled:
                self._pause_s = 0.0005
            if found.settled >= self._last.settled:
                self._last = found
        return self._last

    def wait(self, timeout_s: float) -> None:
        """Sleep half a millisecond at first, then increasingly longer."""
        time.sleep(min(timeout_s, self._pause_s))
        self._pause_s = min(self._pause_s * 1.5, 0.01)

    def stop_waiting(self) -> None:
        """Have a blocked `put` raise `BufferFull`."""
        self._stopped = True

    def close(self, wait_s: float) -> None:
        """Close the spool; the directory's shipper sends what is in it."""
        self._stopped = True
        _open_buffers.discard(self)
        self.progress()
        if self._spool is not None:
            self._spool.close()
        if self._wakeup is not None:
            self._wakeup.notify()  # so that the shipper sees the end of the spool
            self._wakeup.close()
            self._wakeup = None
        if self._supervisor is not None:
            self._supervisor.leave(wait_s)
            self._supervisor = None

    def abandon(self) -> None:
        """Start a spool of its own in a forked child."""
        if self._spool is not None:
            self._spool.abandon()
        if self._wakeup is not None:
            self._wakeup.close()
        self._begin()

    def finish(self) -> None:
        """At exit: wait until the directory is shipped, and for an own thread to send."""
        if self._supervisor is None:
            return
        self._supervisor.wait_until_shipping(EXIT_S)
        if self._mode != "thread" and not self._supervisor.ships_here:
            return
        deadline = time.monotonic() + EXIT_S
        while self.progress().settled < self.emitted and time.monotonic() < deadline:
            self.wait(0.01)
        settled, emitted = self.progress().settled, self.emitted
        left = emitted - settled - self.dropped_between(settled, emitted)
        if left > 0:
            log.warning(
                "%d events remain in %s; the next shipper will send them",
                left,
                self.where.removeprefix("in "),
            )


_open_buffers: WeakSet[DiskBuffer] = WeakSet()
_registered = False


def _finish_at_exit(buffer: DiskBuffer) -> None:
    """Finish a buffer when this process exits, also in a multiprocessing child.

    A forked child does not run the parent's `atexit` functions, and in some versions of Python only
    multiprocessing's own finalizers.
    """
    global _registered  # noqa: PLW0603 - once in a process
    _open_buffers.add(buffer)
    process = sys.modules.get("multiprocessing.process")
    if _registered or process is None or process.parent_process() is None:
        return
    _registered = True
    from multiprocessing.util import Finalize

    Finalize(None, _at_exit, exitpriority=0)


@atexit.register
def _at_exit() -> None:
    for buffer in list(_open_buffers):
        buffer.finish()


def _after_fork() -> None:
    global _registered  # noqa: PLW0603 - a fork begins without
    _registered = False
    _open_buffers.clear()


os.register_at_fork(after_in_child=_after_fork)
