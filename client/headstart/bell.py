"""How an append wakes the shipper of its directory, in any process, without either of them polling.

`DIR/ship.lock` is locked by whoever ships; its first byte says that the shipper sleeps. Who
appends and finds it set clears it and writes a byte into the pipe `DIR/bell`. A ring that is
missed costs no more than one of the shipper's own looks.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "ship.lock"
_BELL_FILE: Final = "bell"


def open_lock(directory: Path) -> int:
    """Open the file that a directory's shipper locks; its first byte is the flag."""
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    if os.fstat(descriptor).st_size == 0:
        os.pwrite(descriptor, b"\0\0\0\n", 0)
    return descriptor


def note_shipper(lock: int) -> None:
    """Write this process's id into the lock file, for people: `tail -c 12 ship.lock`."""
    os.pwrite(lock, b"%11d\n" % os.getpid(), 4)


class Bell:
    """Both ends: emitters `ring`, the shipper says that it `sleeps` and reads `pipe`."""

    def __init__(self, directory: Path) -> None:
        """Open the pipe and the flag. Raises `OSError`."""
        pipe = directory / _BELL_FILE
        if pipe.exists() and not pipe.is_fifo():  # what some ways of copying make of it
            pipe.unlink()
        with contextlib.suppress(FileExistsError):
            os.mkfifo(pipe, 0o600)
        # Open for both: neither side waits for the other, and nobody sees an end of file.
        self.pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        lock = open_lock(directory)
        try:
            self._flag = mmap.mmap(lock, 1)
        finally:
            os.close(lock)

    def ring(self) -> None:
        """Wake the shipper where it sleeps."""
        if self._flag[0]:
            self._flag[0] = 0
            with contextlib.suppress(BlockingIOError):  # full: it is being rung already
                os.write(self.pipe, b"!")

    def sleeps(self) -> None:
        """Ask for the next append to ring. What was appended before must be looked for after."""
        self._flag[0] = 1

    def wakes(self) -> None:
        """Ask for no more rings, and forget those that came."""
        self._flag[0] = 0
        with contextlib.suppress(BlockingIOError):
            os.read(self.pipe, 4096)

    def close(self) -> None:
        """Let go of both. Twice is harmless."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self._flag.close()
            self.pipe = -1
