"""Runs commands of the service in forks of a process that has imported what they import.

A command takes .4 s of CPU and more to import its modules, and tests run about a thousand. Each is
a process of its own here too, with its own arguments, environment, folder and streams; what it does
from the entry point on is what `python -m cli` does. Commands as people start them, from their
first import, are run by `tests/integration/test_snippets.py` and the tests of `launch`.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("cli", "settings", "topics", "sinks", "replay", "console", "memory", "headstart")
LEFT_OUT: Final = ("headstart.integrations",)
"""They import agent frameworks, which are not installed here."""
MOST_BYTES: Final = 1 << 20
"""Of a request: arguments and an environment."""
ROOT: Final = Path(__file__).parent.parent


class CommandServer:
    """The process, as those who send it commands see it."""

    def __init__(self) -> None:
        self._own, other = _pair()
        self._sending = threading.Lock()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.command_server", str(other.fileno())],
                cwd=ROOT,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def start(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ) -> StartedCommand:
        """Start a command. `streams`: file descriptors of stdin, stdout and stderr."""
        request = [list(arguments), str(folder), dict(environment)]
        report, other = socket.socketpair()
        with other, self._sending:
            socket.send_fds(self._own, [json.dumps(request).encode()], [other.fileno(), *streams])
        return StartedCommand(report)


class StartedCommand:
    """A command that the server has started, and its report: its process id, then how it ended."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self._lines = report.makefile()
        self._pid = int(self._lines.readline())

    def wait(self, seconds: float) -> int:
        """Return the exit code; -N: ended by signal N. Raises TimeoutError, and kills it then."""
        self._report.settimeout(seconds)
        try:
            return os.waitstatus_to_exitcode(int(self._lines.readline()))
        except TimeoutError:
            os.kill(self._pid, 9)
            raise
        finally:
            self._lines.close()
            self._report.close()


@functools.cache
def command_server() -> CommandServer:
    """Return the server of this process, started by the first call."""
    return CommandServer()


def _pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
    return pair


def import_all() -> None:
    """Import what commands import when they need it."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for each in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not each.name.startswith(LEFT_OUT) and not each.name.endswith("__main__"):
                importlib.import_module(each.name)


def become_command(requests: socket.socket) -> None:
    """Serve requests until the other end is closed; return in each command's own process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for
    while True:
        text, files, _flags, _address = socket.recv_fds(requests, MOST_BYTES, 4)
        if not text:
            sys.exit()
        if os.fork() == 0:
            break
        for each in files:
            os.close(each)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    report, *streams = files
    if process := os.fork():
        os.write(report, b"%d\n" % process)
        os.write(report, b"%d\n" % os.waitpid(process, 0)[1])
        os._exit(0)
    os.close(report)
    _set_up(json.loads(text), streams)


def _set_up(request: list[Any], streams: Sequence[int]) -> None:
    """Give this process what a command is started with."""
    arguments, folder, environment = request
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[0] = folder
    sys.argv[1:] = arguments


if __name__ == "__main__":
    import_all()
    gc.freeze()
    become_command(socket.socket(fileno=int(sys.argv[1])))
    main = sys.modules["__main__"]  # by its names click shows the program, and processes begin
    main.__package__, main.__spec__ = "cli", importlib.util.find_spec("cli.__main__")
    sys.argv[0] = str(ROOT / "cli" / "__main__.py")
    importlib.import_module("cli.main").main()
