"""Wakes the shipper of a directory after an append, across processes, without polling.

The first byte of `DIR/ship.lock` is set while the shipper sleeps. An emitter that appends and finds
it set clears it and writes the name of its spool into the pipe `DIR/bell`. After an idle period it
writes the name whatever the byte is, as the shipper polls only recently active spools. A missed
wake-up is delayed until the shipper's next poll of idle spools.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import Final

from headstart.spool.locks import LOCK_FILE, is_in_place, open_lock

_BELL_FILE: Final = "bell"
QUIET_MS: Final = 100
"""After so many ms without an event a process writes its name, even if the shipper is awake."""
_PIPE_BYTES: Final = 1 << 16


class WakeupPipe:
    """Both ends: emitters `wake` and `notify`; the shipper arms it and reads names."""

    def __init__(self, directory: Path, name: str = "") -> None:
        """Open the pipe and the flag. `name`: the emitter's spool. Raises `OSError`."""
        self.directory, self.name = directory, name
        self._message = f"{name}\n".encode()
        pipe = directory / _BELL_FILE
        if pipe.exists() and not pipe.is_fifo():  # a copied directory may have a file here
            pipe.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(pipe, 0o600)
        # Open for both: neither side waits for the other, or sees an end of file.
        self.pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        lock = open_lock(directory)
        try:
            self._flag = mmap.mmap(lock, 1)
            self._opened = os.fstat(self.pipe), os.fstat(lock)
        finally:
            os.close(lock)

    def is_current(self) -> bool:
        """Return whether both files are still in the directory; they may have been deleted."""
        pipe, lock = self._opened
        return is_in_place(self.directory / _BELL_FILE, pipe) and is_in_place(
            self.directory / LOCK_FILE, lock
        )

    def wake(self) -> None:
        """Wake the shipper if it sleeps."""
        if self._flag[0]:
            self.notify()

    def notify(self) -> None:
        """Have the shipper read this spool, asleep or not."""
        self._flag[0] = 0
        with contextlib.suppress(BlockingIOError):  # full: the shipper is being woken already
            os.write(self.pipe, self._message)

    def arm(self) -> None:
        """Have the next append wake the shipper, which must poll once more after this call."""
        self._flag[0] = 1

    def disarm(self) -> None:
        """Stop further wake-ups."""
        self._flag[0] = 0

    def read_names(self) -> set[str]:
        """Return the names of the spools that were written since the last call."""
        try:
            return set(os.read(self.pipe, _PIPE_BYTES).decode(errors="replace").splitlines())
        except BlockingIOError:
            return set()

    def close(self) -> None:
        """Close both. Idempotent."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self._flag.close()
            self.pipe = -1
