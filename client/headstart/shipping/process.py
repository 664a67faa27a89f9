"""Ships in a process: shared by a host's executors, or the command `headstart ship`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from headstart.arguments.addresses import broker_addresses
from headstart.log_lines import configure_logging
from headstart.scrubbing.masking import remember_environment
from headstart.shipping.shipper import Shipper
from headstart.spool.layout import QUARANTINE, spool_names
from headstart.spool.locks import is_current, note_shipper, noted_shipper, open_lock, try_lock
from headstart.spool.quarantine import quarantined_files

log = logging.getLogger("headstart")

IDLE_S: Final = 10.0
"""The shared process ends after so long without a spool."""
GIVE_UP_S: Final = 600.0
"""It also ends after so long without an emitting process or any progress."""


class ShipReport(NamedTuple):
    """What a run of `ship` left in a directory of spools."""

    directory: Path
    spools_left: int
    lost: int
    """Events that this run gave up: damaged, too old, refused by the broker, or missing."""
    quarantined: int
    """Files that this run added to the quarantine, or appended to."""
    quarantined_before: int
    """Other files there."""

    @property
    def complete(self) -> bool:
        """Whether everything was sent."""
        return not (self.spools_left or self.lost or self.quarantined)

    def __str__(self) -> str:
        """Return it in one line, for people."""
        kept = self.directory / QUARANTINE
        parts = [f"{self.spools_left} spools are left in {self.directory}"]
        if self.lost or self.quarantined:
            parts.append(f"events lost: {self.lost}, files added to {kept}: {self.quarantined}")
        if self.quarantined_before:
            parts.append(f"note: files from before in {kept}: {self.quarantined_before}")
        return "; ".join(parts)


def ship(
    directory: Path,
    *,
    kafka: str | None = None,
    own_security: bool = False,
    drain: bool = False,
    timeout_s: float | None = None,
) -> ShipReport:
    """Ship a directory of spools until SIGTERM or Ctrl-C, or with `drain` until it is empty.

    `kafka`, `own_security`: see `Shipper`. Waits while another process ships it, and takes over
    when that ends. Returns what is left and what was lost. Raises `OSError` if the
    directory cannot be used, `TimeoutError` after `timeout_s`, `InvalidArgument` for an invalid
    address.
    """
    if kafka is not None:
        broker_addresses(kafka)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    _raise_file_limit()
    before: dict[str, int] | None = None
    lost = 0
    while True:
        lock = open_lock(directory)
        try:
            _wait_for(lock, directory, deadline)
            if not is_current(directory, lock):
                continue
            note_shipper(lock)
            if before is None:
                before = quarantined_files(directory)
            shipper = Shipper(directory, kafka=kafka, own_security=own_security, lock=lock)
            left = asyncio.run(_run_until_stopped(shipper, drain, deadline))
            lost += shipper.lost
            if not shipper.displaced:
                kept = quarantined_files(directory).items()
                fresh = kept - before.items()
                return ShipReport(directory, left, lost, len(fresh), len(kept) - len(fresh))
        finally:
            os.close(lock)


def _wait_for(lock: int, directory: Path, deadline: float | None) -> None:
    """Take the lock; Ctrl-C ends the wait."""
    if try_lock(lock):
        return
    log.info("waiting to take over: %s", _shipped(lock, directory))
    if deadline is None:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return
    while not try_lock(lock):
        if time.monotonic() > deadline:
            raise TimeoutError(_shipped(lock, directory))
        time.sleep(0.05)


def _shipped(lock: int, directory: Path) -> str:
    """Return which process ships a directory, and how to end it."""
    if not (process := noted_shipper(lock)):
        return f"another process ships {directory}"
    return (
        f"process {process} ships {directory}; to ship it here, stop the executors there and end "
        f"that process (kill {process}): what it has not sent stays in the directory"
    )


async def _run_until_stopped(shipper: Shipper, drain: bool, deadline: float | None) -> int:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    left = 0

    def should_stop() -> bool:
        nonlocal left
        # Including unreadable ones: their events are not sent.
        left = len(shipper.known) - shipper.spools + shipper.unsent
        late = deadline is not None and time.monotonic() > deadline
        return asked.is_set() or late or (drain and not shipper.unsent)

    await shipper.run(should_stop)
    return left


def _raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit: every spool needs three."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems allow fewer than they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def detach() -> None:
    """Become the shared process of the directory in argv, with the inherited lock.

    The started process forks and exits at once, so that its parent need not wait for it.
    """
    directory, lock = Path(sys.argv[1]), int(sys.argv[2])
    if os.fork():
        os._exit(0)
    remember_environment()
    configure_logging()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    os.set_inheritable(lock, False)
    _raise_file_limit()
    try:
        ship_while_used(directory, lock)
    except Exception:  # an uncaught one would be printed with its secrets
        log.exception("the shipper ends, because an error was not expected")
        raise SystemExit(70) from None  # EX_SOFTWARE


def ship_while_used(directory: Path, lock: int) -> None:
    """Ship until the directory is unused for a while; then release its lock."""
    while True:
        note_shipper(lock)
        shipper = Shipper(directory, lock=lock)
        last_look: list[set[str]] = []
        try:
            asyncio.run(shipper.run(_until_unused(shipper, last_look)))
        finally:
            os.close(lock)
        if not last_look:
            return  # displaced by another shipper
        # A process that emitted and exited while we held the lock started no shipper: look again.
        if spool_names(directory) <= last_look[0]:
            return
        lock = open_lock(directory)
        if not (try_lock(lock) and is_current(directory, lock)):
            os.close(lock)
            return


def _until_unused(shipper: Shipper, last_look: list[set[str]]) -> Callable[[], bool]:
    """Return whether the shipper is unused, as a function that then sets `last_look`."""

    def should_stop() -> bool:
        limit = IDLE_S if not shipper.spools else GIVE_UP_S
        if shipper.has_live_writers or shipper.idle_s <= limit:
            return False
        last_look[:] = [set(shipper.known)]
        return True

    return should_stop
