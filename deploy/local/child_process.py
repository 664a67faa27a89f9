"""One child process: its signals, its log, its end. Where children start is `group.py`."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import StackError

_ASK_SECONDS = 5.0
_INSIST_SECONDS = 1.2
_KILL_SECONDS = 1.0
_TAIL_BYTES = 16_384
_TAIL_LINES = 6


@dataclass(frozen=True)
class Ending:
    """How a program wants to be ended; each one gives its reasons where it is defined."""

    ask: signal.Signals
    """at `stop`"""
    insist: signal.Signals
    """when it has not heeded that"""
    orphaned: signal.Signals
    """sent by the kernel when the owner has died"""


AT_ONCE = Ending(signal.SIGKILL, signal.SIGKILL, signal.SIGKILL)
"""For preparations, whose half-done work is thrown away anyway."""


@dataclass
class Child:
    """A started process and the part of the log file that is its own."""

    name: str
    process: subprocess.Popen[bytes]
    ending: Ending
    log: Path
    log_start: int

    @property
    def pid(self) -> int:
        """Its process id, which is also its session and process group."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs; an ended one is reaped here."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended. SIGKILL goes to the whole group."""
        if not self.alive:
            return
        if number is signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        else:
            self.process.send_signal(number)

    def finish(self, seconds: float, remedy: str) -> None:
        """Wait for a preparation to end well."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failure(f"took longer than {seconds:.0f} s; {remedy}") from None
        if self.process.returncode != 0:
            raise self.failure(f"{self.outcome}; {remedy}")

    @property
    def outcome(self) -> str:
        """How it ended, in words."""
        code = self.process.poll()
        if code is None:
            return "is running"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def failure(self, what: str) -> StackError:
        """An error in one line, with the end of the log below it."""
        tail = "".join(f"\n    {line}" for line in self.tail())
        return StackError(f"{self.name} {what} (log: {self.log}){tail}")

    def tail(self) -> list[str]:
        """The last lines this process wrote, without Java's stack frames."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self.log_start, size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        lines = [line.rstrip() for line in text.splitlines() if not line.startswith("\tat ")]
        return [line for line in lines if line][-_TAIL_LINES:]


def end_all(children: Sequence[Child]) -> None:
    """Ask all, in the order given, then insist, then kill: under 8 s together."""
    for child in children:
        child.send(child.ending.ask)
    _wait_all(children, _ASK_SECONDS)
    for child in children:
        child.send(child.ending.insist)
    _wait_all(children, _INSIST_SECONDS)
    for child in children:
        child.send(signal.SIGKILL)
    _wait_all(children, _KILL_SECONDS)


def _wait_all(children: Sequence[Child], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
