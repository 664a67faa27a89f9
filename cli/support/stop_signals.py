"""Stop signals of `headstart up`: Ctrl-C, SIGTERM, or a closed terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TextIO

from cli.support.output import echo


class Asked:
    """Records stop requests: Ctrl-C, SIGTERM or a closed terminal (SIGHUP).

    Until `started` is set, the first request raises `KeyboardInterrupt`.
    """

    def __init__(self) -> None:
        self.once = threading.Event()
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
        if self.once.is_set():
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
