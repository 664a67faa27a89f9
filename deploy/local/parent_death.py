"""Ends child processes when their parent dies, also on kill -9.

On Linux the kernel does it (PR_SET_PDEATHSIG). Elsewhere (macOS, BSD) a small watcher process reads
a pipe whose other end only the parent holds, and signals the children when it closes. There, a
child forked in the instant of the parent's death can be missed, and a process forked from the
parent without exec keeps the pipe open.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from deploy.local.errors import StackError

_PR_SET_PDEATHSIG = 1
_WATCHER = """
import os, sys
tied = {}
for line in sys.stdin:
    pid, number = map(int, line.split())
    tied[pid] = number
for pid, number in tied.items():
    if number:
        try:
            os.kill(pid, number)
        except OSError:
            pass
"""


class ParentDeathWatch(Protocol):
    """Signals children when this process dies."""

    def before_exec(self, death: signal.Signals) -> Callable[[], None] | None:
        """Return what the forked child calls before exec, if anything."""

    def follow(self, pid: int, death: signal.Signals) -> None:
        """Register a started child; it gets `death` when this process dies."""

    def release(self, pid: int) -> None:
        """Unregister a reaped child: its process id may be reused."""

    def close(self) -> None:
        """Release resources once no children are left."""


def parent_death_watch() -> ParentDeathWatch:
    """Return the implementation for this platform."""
    return ParentDeath() if sys.platform == "linux" else ParentWatcher()


class ParentDeath:
    """The kernel signals the child when the *thread* that forked it ends (see prctl(2))."""

    def __init__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise StackError(
                "the local stack must be started from the main thread, because its processes end "
                "with the thread that started them"
            )
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def before_exec(self, death: signal.Signals) -> Callable[[], None]:
        """Return a function to run after the change of user, which would clear the setting."""
        prctl, owner, number = self._prctl, os.getpid(), int(death)

        def tie() -> None:
            # This must not take a lock: another thread could have held it at the fork.
            prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
            if os.getppid() != owner:  # the parent died between fork and prctl
                os._exit(1)

        return tie

    def follow(self, pid: int, death: signal.Signals) -> None:
        """Nothing to do: the kernel does it."""

    def release(self, pid: int) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class ParentWatcher:
    """A watcher process that signals the children when the parent's end of a pipe closes."""

    def __init__(self) -> None:
        # A session of its own, so that Ctrl-C in the terminal does not end it first.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def before_exec(self, death: signal.Signals) -> None:
        """Nothing to call in the child."""

    def follow(self, pid: int, death: signal.Signals) -> None:
        """Register a child with the watcher."""
        self._send(pid, int(death))

    def release(self, pid: int) -> None:
        """Unregister a child from the watcher."""
        self._send(pid, 0)

    def close(self) -> None:
        """End the watcher."""
        self._process.kill()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _send(self, pid: int, number: int) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # the watcher has exited
                self._process.stdin.write(b"%d %d\n" % (pid, number))
                self._process.stdin.flush()
