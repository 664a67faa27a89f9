"""Ensures that a directory is shipped while this process has a spool in it.

One thread per directory and process waits for the directory's lock, which the kernel releases the
moment its holder dies. The thread that gets it starts the shared process, which inherits the lock,
or ships the directory itself. The shared process holds no event that is not on disk.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import orjson

from headstart.arguments.checks import broker_ports
from headstart.connections.own_security import absolute_paths
from headstart.spool.layout import SPOOL_FILE, spool_names
from headstart.spool.locks import is_current, note_shipper, open_lock, try_lock

if TYPE_CHECKING:
    from headstart.shipping.shipper import Shipper

log = logging.getLogger("headstart")

Mode = Literal["process", "thread", "none"]
"""What ships: a process shared by the host's executors, a thread of this one, or neither."""

_QUICK_S: Final = 1.0
_PAUSE_S: Final = 0.5
_QUICK_ENDS: Final = 3
"""A shared process that ends within `_QUICK_S`, so often in a row, cannot be started here."""


class ShipperSupervisor:
    """Keeps a shipper of one directory running, from the first `join` to the last `leave`."""

    def __init__(self, directory: Path, mode: Mode) -> None:
        self.directory, self.mode = directory, mode
        self._users = 0
        self._thread: threading.Thread | None = None
        self._lock = -1
        self._shipper: Shipper | None = None
        self._changed = threading.Lock()
        self._shipping = threading.Event()

    def join(self) -> None:
        """Start the supervising thread if there is none yet."""
        with self._changed:
            self._users += 1
            if self.mode == "none" or self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="headstart-ship", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # a process that is ending: the next one ships what it left
                self._thread = None

    def leave(self, wait_s: float) -> None:
        """Stop after the last user; wait up to `wait_s` seconds for a thread that ships."""
        with self._changed:
            self._users -= 1
            thread = self._thread if self._shipper is not None and not self._users else None
        if thread is not None and thread.is_alive():
            thread.join(wait_s)

    @property
    def ships_here(self) -> bool:
        """Whether a thread of this process ships."""
        return self._shipper is not None

    def wait_until_shipping(self, timeout_s: float) -> None:
        """Wait until it is shipped: a process that ends sooner would start no shipper."""
        if self._thread is not None:
            self._shipping.wait(timeout_s)

    def _run(self) -> None:
        quick = 0  # consecutive quick ends
        while self._is_needed():
            began = time.monotonic()
            try:
                self._supervise_once(in_thread=self.mode == "thread" or quick >= _QUICK_ENDS)
                at_once = time.monotonic() - began < _QUICK_S
            except Exception as error:
                log.error("shipper of %s failed, restarting: %r", self.directory, error)
                at_once = True
                time.sleep(_PAUSE_S)
            quick = quick + 1 if at_once else 0

    def _is_needed(self) -> bool:
        with self._changed:
            if self._users == 0:
                self._thread = None  # the next `join` starts another
            return self._users > 0

    def _supervise_once(self, *, in_thread: bool) -> None:
        """Wait until no process ships the directory, then start a shipper."""
        with self._opened() as lock:
            if not try_lock(lock):
                self._shipping.set()  # another process ships
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._shipping.clear()
            if not self._users or not is_current(self.directory, lock):
                return  # the lock file was deleted and is worthless: try again
            if in_thread:
                note_shipper(lock)
                self._ship(lock)
            else:
                self._start_process(lock)
                self._shipping.set()
        if not in_thread:
            self._await_end()

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the lock file for a block, so that no fork inherits it."""
        with _opening:
            lock = self._lock = open_lock(self.directory)
        try:
            yield lock
        finally:
            with _opening:
                self._lock = -1
                os.close(lock)

    def _ship(self, lock: int) -> None:
        # Imported here: an executor beside a shared shipper needs no Kafka client and no loop.
        import asyncio

        from headstart.shipping.shipper import Shipper

        self._shipper = Shipper(self.directory, lock=lock)
        self._shipping.set()
        try:
            asyncio.run(self._shipper.run(lambda: not self._users))
        finally:
            self._shipper.close()
            self._shipper = None

    def _start_process(self, lock: int) -> None:
        """Start the shared process, which inherits the lock and outlives this one."""
        import subprocess  # few of a host's executors need it

        home = str(Path(__file__).parents[2])
        argv = [sys.executable, "-P", "-c", _PROGRAM, home, str(self.directory), str(lock)]
        log_file = os.open(self.directory / SHIPPER_LOG, _APPEND, 0o600)
        if os.fstat(log_file).st_size > _LOG_BYTES:
            os.ftruncate(log_file, 0)
        try:
            subprocess.run(
                argv,
                pass_fds=[lock],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd="/",
                env={**os.environ, **absolute_paths()},
                start_new_session=True,
                check=True,
                timeout=_START_S,
            )
        finally:
            os.close(log_file)

    def _await_end(self) -> None:
        """Wait for the end of the shared process, without taking the lock from a successor."""
        with self._opened() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)

    def abandon(self) -> None:
        """Close what a forked child has inherited: only its parent ships."""
        if self._lock >= 0:
            os.close(self._lock)
        if self._shipper is not None:
            self._shipper.close()


def ship_leftovers(directory: Path, kafka: str) -> bool:
    """Start the shared process if a directory has spools for a broker and no process ships them.

    Brokers are compared by port, because one host has several names. For spools of other brokers
    alone nothing is started: it would wait for them and block `headstart ship --kafka`. Returns
    whether it was started. Raises `OSError`, or `subprocess.SubprocessError`.
    """
    if not directory.is_dir() or not _spooled_ports(directory) & broker_ports(kafka):
        return False
    one = ShipperSupervisor(directory, "process")
    with one._opened() as lock:
        if not try_lock(lock) or not is_current(directory, lock):
            return False
        one._start_process(lock)
    return True


def _spooled_ports(directory: Path) -> set[int]:
    """Return the ports of all brokers that the spools of a directory name."""
    ports: set[int] = set()
    for name in spool_names(directory):
        # A spool that cannot be read here cannot be shipped either.
        with suppress(OSError, ValueError, KeyError, TypeError):
            described = orjson.loads((directory / name / SPOOL_FILE).read_bytes())
            ports |= broker_ports(str(described["kafka"]))
    return ports


SHIPPER_LOG: Final = "shipper.log"
"""The log file of the shared process, in the directory that it ships."""
_LOG_BYTES: Final = 1 << 20
_START_S: Final = 60.0
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from headstart.shipping.process import detach; detach()"
)
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND

_supervisors: dict[tuple[Path, Mode], ShipperSupervisor] = {}
_guard = threading.Lock()
_opening = threading.Lock()
"""Held while a lock file is opened or closed, and during a fork: a child that inherits a descriptor
that is not recorded in `_lock` would hold the lock for as long as it lives."""


def shipper_supervisor(directory: Path, mode: Mode) -> ShipperSupervisor:
    """Return this process's supervisor of a directory."""
    with _guard:
        return _supervisors.setdefault((directory, mode), ShipperSupervisor(directory, mode))


def _after_fork() -> None:
    global _guard  # noqa: PLW0603 - the parent's may be held by a thread that is not here
    _opening.release()
    _guard = threading.Lock()
    for each in _supervisors.values():
        each.abandon()
    _supervisors.clear()


os.register_at_fork(
    before=_opening.acquire,
    after_in_parent=_opening.release,
    after_in_child=_after_fork,
)
