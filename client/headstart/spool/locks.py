"""Who ships a directory: whoever holds the kernel's lock on its file `ship.lock`.

The kernel hands the lock over the moment its holder dies. It is a lock on a file, not on a name:
where somebody deletes the file, a successor opens another one. So who has got the lock looks
whether the name still means its file, and looks again while it ships.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "ship.lock"


def open_lock(directory: Path) -> int:
    """Open the file that a directory's shipper locks; its first byte is the bell's flag."""
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    if os.fstat(descriptor).st_size == 0:
        os.pwrite(descriptor, b"\0\0\0\n", 0)
    return descriptor


def try_lock(lock: int) -> bool:
    """Take the lock where nobody holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_in_place(path: Path, opened: os.stat_result) -> bool:
    """Whether a path still means the file that was opened there."""
    try:
        return os.path.samestat(os.stat(path), opened)
    except OSError:
        return False


def is_current(directory: Path, lock: int) -> bool:
    """Whether a lock is one on the directory's file, rather than on one that was deleted."""
    return is_in_place(directory / LOCK_FILE, os.fstat(lock))


def note_shipper(lock: int) -> None:
    """Write this process's id into the lock file, for people: `tail -c 12 ship.lock`."""
    os.pwrite(lock, b"%11d\n" % os.getpid(), 4)


def noted_shipper(lock: int) -> int:
    """Return the process id that the last shipper wrote into its lock file, else 0."""
    noted = os.pread(lock, 12, 4).strip(b"\0 \n")
    return int(noted) if noted.isdigit() else 0
