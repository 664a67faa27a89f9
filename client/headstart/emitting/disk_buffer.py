"""Events that wait on disk: appended to this process's spool, shipped by whoever ships it."""

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
from headstart.shipping.supervisor import Mode, ShipperSupervisor, keeper
from headstart.shipping.wakeup import QUIET_MS, WakeupPipe
from headstart.spool.layout import Progress, SpoolTarget
from headstart.spool.writer import BufferFull, SpoolSettings, SpoolWriter

log = logging.getLogger("headstart")

_SAY_EVERY_S = 60.0
_FULL_POLL_S = 0.005
_CHECK_MS = 10_000
EXIT_S = 5.0
"""How long an ending process waits for its own shipping thread."""


class DiskBuffer:
    """An outbox that survives its process. The spool is opened by the first event."""

    def __init__(self, target: SpoolTarget, settings: SpoolSettings, mode: Mode) -> None:
        self._target, self._settings, self._mode = target, settings, mode
        self.where = f"in {settings.directory}"
        self._stopped = False
        self._begin()

    def _begin(self) -> None:
        self._name()
        self._spool: SpoolWriter | None = None
        self._bell: WakeupPipe | None = None
        self._keeper: ShipperSupervisor | None = None
        self._last = Progress()
        self._said = -_SAY_EVERY_S
        self._unsaid = 0
        self._pause_s = 0.0005
        self._put_ms = self._checked_ms = 0

    def _name(self) -> None:
        self.id = new_id()
        self._prefix = origin_prefix(self.id)

    @property
    def emitted(self) -> int:
        """How many events were taken; the next one's position."""
        return 0 if self._spool is None else self._spool.next

    @property
    def dropped(self) -> int:
        """How many events went at the limit; those already read for sending may still arrive."""
        return 0 if self._spool is None else self._spool.dropped

    def dropped_between(self, first: int, end: int) -> int:
        """Return how many of these positions went at the limit; an upper bound, as `dropped`."""
        return 0 if self._spool is None else self._spool.dropped_between(first, end)

    def put(self, key: bytes, body: bytes, now_ms: int) -> None:
        """Append one event to the spool, and wake who ships it."""
        spool = self._spool or self._open()
        event = with_origin(body, self._prefix, spool.next)
        while not spool.append(key, event, now_ms):
            self._make_room(spool)
        silence, self._put_ms = now_ms - self._put_ms, now_ms
        if self._bell is not None:
            if 0 <= silence < QUIET_MS:
                self._bell.ring()
            else:
                self._announce(self._bell, now_ms)

    def _announce(self, bell: WakeupPipe, now_ms: int) -> None:
        """Ring, the first time in a while; see that there still is somebody to hear it."""
        if not 0 <= now_ms - self._checked_ms < _CHECK_MS:
            self._checked_ms = now_ms
            if not bell.in_place():
                self._bell = self._new_bell()
                bell.close()
                bell = self._bell or bell
        if bell.pipe >= 0:
            bell.announce()

    def _new_bell(self) -> WakeupPipe | None:
        try:
            return WakeupPipe(self._settings.directory, self.id)
        except OSError as error:  # no pipes here: the shipper looks by itself, only later
            log.warning("no pipe in %s: %s", self._settings.directory, error)
            return None

    def _open(self) -> SpoolWriter:
        try:
            spool = SpoolWriter(self.id, self._settings, self._target)
            self._bell = self._new_bell()
            self._keeper = keeper(self._settings.directory, self._mode)
            self._keeper.join()
        except BaseException:  # whatever was made has this name, so the next has another
            self._name()
            raise
        self._spool = spool
        _finish_at_exit(self)
        if self._settings.fsync == "interval":
            name = "headstart-fsync"
            thread = threading.Thread(target=self._sync, args=(spool,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # a process that is ending
                log.warning("%s is not brought to the disk at intervals: %s", spool.folder, error)
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
                    log.error("cannot bring %s to the disk: %s", spool.folder, error)

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
        self._unsaid += dropped
        if self._unsaid and time.monotonic() - self._said > _SAY_EVERY_S:
            log.error("%d events were dropped: the spool %s is full", self._unsaid, spool.folder)
            self._said, self._unsaid = time.monotonic(), 0

    def progress(self) -> Progress:
        """Return what the shipper has noted, whichever process it is."""
        if self._spool is not None:
            found = self._spool.progress()
            if found.settled > self._last.settled:
                self._pause_s = 0.0005
            if found.settled >= self._last.settled:
                self._last = found
        return self._last

    def wait(self, timeout_s: float) -> None:
        """Wait a little: half a millisecond first, then longer and longer."""
        time.sleep(min(timeout_s, self._pause_s))
        self._pause_s = min(self._pause_s * 1.5, 0.01)

    def stop_waiting(self) -> None:
        """Let a `put` that blocks give up with `BufferFull`."""
        self._stopped = True

    def close(self, wait_s: float) -> None:
        """Let go of the spool; what is in it is shipped by whoever ships the directory."""
        self._stopped = True
        _open_outboxes.discard(self)
        self.progress()
        if self._spool is not None:
            self._spool.close()
        if self._bell is not None:
            self._bell.announce()  # that nobody writes there any more
            self._bell.close()
            self._bell = None
        if self._keeper is not None:
            self._keeper.leave(wait_s)
            self._keeper = None

    def abandon(self) -> None:
        """Begin a spool of its own in a fork."""
        if self._spool is not None:
            self._spool.abandon()
        if self._bell is not None:
            self._bell.close()
        self._begin()

    def finish(self) -> None:
        """At the end of the process: see that somebody ships, and give an own thread a moment."""
        if self._keeper is None:
            return
        self._keeper.wait_until_kept(EXIT_S)
        if self._mode != "thread" and not self._keeper.ships_here:
            return
        deadline = time.monotonic() + EXIT_S
        while self.progress().settled < self.emitted and time.monotonic() < deadline:
            self.wait(0.01)
        settled, emitted = self.progress().settled, self.emitted
        left = emitted - settled - self.dropped_between(settled, emitted)
        if left > 0:
            log.warning("%d events stay in %s for the next who ships", left, self.where[3:])


_open_outboxes: WeakSet[DiskBuffer] = WeakSet()
_registered = False


def _finish_at_exit(outbox: DiskBuffer) -> None:
    """Have an outbox finished when this process ends, also where multiprocessing ends it.

    A child that it forked leaves out what the parent had registered with `atexit`, and in some
    versions of Python runs nothing but multiprocessing's own finalizers.
    """
    global _registered  # noqa: PLW0603 - once in a process
    _open_outboxes.add(outbox)
    process = sys.modules.get("multiprocessing.process")
    if _registered or process is None or process.parent_process() is None:
        return
    _registered = True
    from multiprocessing.util import Finalize

    Finalize(None, _at_exit, exitpriority=0)


@atexit.register
def _at_exit() -> None:
    for outbox in list(_open_outboxes):
        outbox.finish()


def _after_fork() -> None:
    global _registered  # noqa: PLW0603 - a fork begins without
    _registered = False
    _open_outboxes.clear()


os.register_at_fork(after_in_child=_after_fork)
