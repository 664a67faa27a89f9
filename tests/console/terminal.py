"""A command on a pseudo-terminal of any size, as a person would run it."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

from tests.processes import command_line

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if "HEADSTART" not in name
    and not name.startswith("LC_")
    # A size in the environment, as a run on several processes has it, overrules the terminal's.
    and name not in {"COLUMNS", "LANG", "LINES", "NO_COLOR"}
}
WAIT_S = 120.0


class Terminal:
    """Runs `headstart ARGUMENTS` until it ends, or is ended."""

    def __init__(
        self, folder: Path, *arguments: str, columns: int = 80, rows: int = 24, **environment: str
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        given = {"TERM": "xterm-256color", "LANG": "C.UTF-8", **environment}
        self.process = subprocess.Popen(
            command_line(*arguments),
            cwd=folder,
            env={**ENVIRONMENT, **given},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=self._lead,  # noqa: PLW1509
        )
        self.raw = b""

    def _lead(self) -> None:
        os.setsid()
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def read(self, seconds: float = 0.2) -> None:
        """Take what it has written within some time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                return
            try:
                self.raw += os.read(self._master, 65536)
            except OSError as error:
                if error.errno == errno.EIO:
                    return
                raise

    def until(self, text: str, since: int = 0) -> int:
        """Wait until it has written `text` past a place; return the place where it now is."""
        deadline = time.monotonic() + WAIT_S
        while text.encode() not in self.raw[since:]:
            assert self.process.poll() is None, self.raw
            assert time.monotonic() < deadline, self.raw
            self.read()
        return len(self.raw)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def ended(self, number: signal.Signals | None = None) -> int:
        """Wait for its end, after a signal if one is given; return its exit code."""
        if number is not None:
            self.process.send_signal(number)
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.raw
            self.read()
        self.read()
        return self.process.wait()

    @property
    def text(self) -> str:
        """What it wrote, without what only moves the cursor or colours."""
        return _ESCAPES.sub(b"", self.raw).decode()

    @property
    def frames(self) -> list[str]:
        """The pictures that it drew on the whole screen, each from its first line on."""
        whole = self.raw.rpartition(b"\x1b[?1049l")[0] or self.raw
        return [_ESCAPES.sub(b"", each).decode() for each in whole.split(b"\x1b[H")[1:]]

    @property
    def restored(self) -> bool:
        """Whether modes, cursor and screen are as they were."""
        shown = self.raw.rfind(b"\x1b[?25h") >= self.raw.rfind(b"\x1b[?25l")
        screen = self.raw.rfind(b"\x1b[?1049l") >= self.raw.rfind(b"\x1b[?1049h")
        return shown and screen and termios.tcgetattr(self._slave) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)
