"""How an append wakes the shipper of its directory, in any process, without either of them polling.

The first byte of `DIR/ship.lock` says that the shipper sleeps. Who appends and finds it set clears
it and writes the name of its spool into the pipe `DIR/bell`. Who appends after a silence does so
whatever the byte says: the shipper reads only the spools that it has lately had events of. A ring
that is missed costs no more than one of the shipper's own looks.
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
"""After so long without an event a process rings with the next, even if the shipper is awake."""
_PIPE_BYTES: Final = 1 << 16


class WakeupPipe:
    """Both ends: emitters `ring`, the shipper says that it `sleeps` and hears who rang."""

    def __init__(self, directory: Path, name: str = "") -> None:
        """Open the pipe and the flag; `name` is the spool whose events are told of.

        Raises `OSError`.
        """
        self.directory, self.name = directory, name
        self._said = f"{name}\n".encode()
        pipe = directory / _BELL_FILE
        if pipe.exists() and not pipe.is_fifo():  # what some ways of copying make of it
            pipe.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(pipe, 0o600)
        # Open for both: neither side waits for the other, and nobody sees an end of file.
        self.pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        lock = open_lock(directory)
        try:
            self._flag = mmap.mmap(lock, 1)
            self._opened = os.fstat(self.pipe), os.fstat(lock)
        finally:
            os.close(lock)

    def in_place(self) -> bool:
        """Whether both files are still the directory's own: somebody may have deleted them."""
        pipe, lock = self._opened
        return is_in_place(self.directory / _BELL_FILE, pipe) and is_in_place(
            self.directory / LOCK_FILE, lock
        )

    def ring(self) -> None:
        """Wake the shipper where it sleeps."""
        if self._flag[0]:
            self.announce()

    def announce(self) -> None:
        """Have the shipper look at this spool, asleep or not."""
        self._flag[0] = 0
        with contextlib.suppress(BlockingIOError):  # full: it is being rung already
            os.write(self.pipe, self._said)

    def sleeps(self) -> None:
        """Ask for the next append to ring. What was appended before must be looked for after."""
        self._flag[0] = 1

    def wakes(self) -> None:
        """Ask for no more rings."""
        self._flag[0] = 0

    def heard(self) -> set[str]:
        """Return who rang since the last time."""
        try:
            return set(os.read(self.pipe, _PIPE_BYTES).decode(errors="replace").splitlines())
        except BlockingIOError:
            return set()

    def close(self) -> None:
        """Let go of both. Twice is harmless."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self._flag.close()
            self.pipe = -1
