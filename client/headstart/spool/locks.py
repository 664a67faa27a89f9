"""The lock of a directory's shipper: the process that holds the flock of `ship.lock` ships it.

The kernel releases the lock the moment its holder dies. It locks a file, not a name: if the file is
deleted, a successor creates another one. So the holder checks that the name still refers to its
file, after locking and again while it ships.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "ship.lock"


def open_lock(directory: Path) -> int:
    """Open the lock file of a directory; its first byte is the flag of `WakeupPipe`."""
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    if os.fstat(descriptor).st_size == 0:
        os.pwrite(descriptor, b"\0\0\0\n", 0)
    return descriptor


def try_lock(lock: int) -> bool:
    """Take the lock if it is free; return whether it was."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_in_place(path: Path, opened: os.stat_result) -> bool:
    """Return whether a path still refers to the file that was opened."""
    try:
        return os.path.samestat(os.stat(path), opened)
    except OSError:
        return False


def is_current(directory: Path, lock: int) -> bool:
    """Return whether a lock is on the directory's present file, not on a deleted one."""
    return is_in_place(directory / LOCK_FILE, os.fstat(lock))


def note_shipper(lock: int) -> None:
    """Write this process's id into the lock file, for people: `tail -c 12 ship.lock`."""
    os.pwrite(lock, b"%11d\n" % os.getpid(), 4)


def noted_shipper(lock: int) -> int:
    """Return the process id that the last shipper wrote into its lock file, else 0."""
    noted = os.pread(lock, 12, 4).strip(b"\0 \n")
    return int(noted) if noted.isdigit() else 0
