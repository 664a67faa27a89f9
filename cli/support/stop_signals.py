"""Stop signals of `headstart up`: Ctrl-C, SIGTERM, or a closed terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Final, TextIO

from cli.support.output import echo

_LOOK_S: Final = 0.1


class SignalFlag:
    """A flag that signal handlers set.

    `threading.Event` is no such flag: its `set` waits for a lock that the interrupted `wait` holds.
    """

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Set it."""
        self.is_set = True

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, `seconds` at most; return whether it is."""
        ends = time.monotonic() + seconds
        while not self.is_set and (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))
        return self.is_set


class Asked:
    """Records stop requests: Ctrl-C, SIGTERM or a closed terminal (SIGHUP).

    Until `started` is set, the first request raises `KeyboardInterrupt`.
    """

    def __init__(self) -> None:
        self.once = SignalFlag()
        self.at_once = self.started = False
        # Looked up now: isatty() is false once the terminal is closed.
        self._terminals = [each for each in (sys.stdout, sys.stderr) if each.isatty()]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, self._ask)

    def _ask(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            _leave(self._terminals)
        if self.once.is_set:
            self.at_once = True
            return
        self.once.set()
        if not self.started:
            raise KeyboardInterrupt


def _leave(terminals: list[TextIO]) -> None:
    """Redirect to /dev/null: every write to a closed terminal fails."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in terminals:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nothing, stream.fileno())
    os.close(nothing)


def echo_if_open(line: str) -> None:
    """Print a line; ignore a closed stderr, so that shutdown continues."""
    with contextlib.suppress(OSError):
        echo(line)
