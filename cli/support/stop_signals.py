"""How `headstart up` is asked to end: by Ctrl-C, SIGTERM, or the end of its terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TextIO

from cli.support.output import say


class Asked:
    """Whether the command was asked to end, by Ctrl-C, SIGTERM or the end of the terminal (SIGHUP).

    Before everything is `started` being asked raises `KeyboardInterrupt`, once.
    """

    def __init__(self) -> None:
        self.once = threading.Event()
        self.at_once = self.started = False
        # Looked up now: isatty() is false for a terminal that has been closed.
        self._terminals = [each for each in (sys.stdout, sys.stderr) if each.isatty()]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
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
    """Write to nothing from now on: a terminal that is gone fails every write."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in terminals:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nothing, stream.fileno())
    os.close(nothing)


def say_if_heard(line: str) -> None:
    """Say a line; where stderr is gone, ending well matters more."""
    with contextlib.suppress(OSError):
        say(line)
