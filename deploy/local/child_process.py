"""One child process: its signals, log and exit. `process_group.py` starts them."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import StackError

_ASK_SECONDS = 5.0
_INSIST_SECONDS = 1.2
_KILL_SECONDS = 10.0
"""Until a killed process is gone: at once, unless the machine is busy. One that is still there
would keep its data directory, and be forgotten while it runs."""
_TAIL_BYTES = 16_384
_TAIL_LINES = 6
_DISK_FULL = re.compile("No space left on device|Disk quota exceeded", re.IGNORECASE)
_LEAST_FREE_BYTES = 1 << 20
"""With less free space even the line that reports it may be missing in the log."""
_SEE_LOG = "see its log, and start again"


@dataclass(frozen=True)
class Ending:
    """The signals that end a program."""

    ask: signal.Signals
    """at `stop`"""
    insist: signal.Signals
    """if it has not exited after `ask`"""
    orphaned: signal.Signals
    """sent by the kernel when the parent has died"""


AT_ONCE = Ending(signal.SIGKILL, signal.SIGKILL, signal.SIGKILL)
"""For preparations, whose incomplete work is discarded."""


@dataclass
class Child:
    """A started process and the offset in the log file where its output begins."""

    name: str
    process: subprocess.Popen[bytes]
    ending: Ending
    log: Path
    log_start: int

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its session and process group."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs; a process that has exited is reaped here."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal it unless it has exited. SIGKILL is sent to the whole process group."""
        if not self.alive:
            return
        if number is signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        else:
            self.process.send_signal(number)

    def finish(self, seconds: float, remedy: str = _SEE_LOG) -> None:
        """Wait for a preparation to exit; raise `StackError` on a failure or timeout."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failure(f"took longer than {seconds:.0f} s", remedy) from None
        if self.process.returncode != 0:
            raise self.failure(self.outcome, remedy)

    @property
    def outcome(self) -> str:
        """How it ended, for messages."""
        code = self.process.poll()
        if code is None:
            return "is running"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def failure(self, what: str, remedy: str = _SEE_LOG) -> StackError:
        """Return an error in one line, followed by the end of the log.

        If the disk is full, the remedy is to free space, whatever else is given.
        """
        lines = self._log_lines()
        if self._disk_is_full(lines):
            remedy = f"the disk of {self.log.parent.parent} is full: free space, and start again"
        tail = "".join(f"\n    {line}" for line in lines[-_TAIL_LINES:])
        return StackError(f"{self.name} {what}; {remedy} (log: {self.log}){tail}")

    def tail(self) -> list[str]:
        """Return the last lines of this process's output."""
        return self._log_lines()[-_TAIL_LINES:]

    def _log_lines(self) -> list[str]:
        """Return the last lines of this process's output, without Java's stack frames."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self.log_start, size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        lines = [line.rstrip() for line in text.splitlines() if not line.startswith("\tat ")]
        return [line for line in lines if line]

    def _disk_is_full(self, lines: Sequence[str]) -> bool:
        if any(map(_DISK_FULL.search, lines)):
            return True
        with contextlib.suppress(OSError):
            return shutil.disk_usage(self.log.parent).free < _LEAST_FREE_BYTES
        return False


def end_all(children: Sequence[Child]) -> None:
    """Send all children `ask`, then `insist`, then SIGKILL, in order.

    Takes under 7 s, and up to 10 s more where the kernel is slow to end a killed process.
    """
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
