"""Processes that tests start: commands of the service, and whether a process still runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from tests import secured
from tests.command_server import command_server
from tests.patience import PATIENCE_S, until

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if "HEADSTART" not in name
} | secured.environment()
"""Without the settings of the shell that runs the tests, but with the login of a secured run."""
Ended = subprocess.CompletedProcess[str]


def command_line(*arguments: object) -> list[str]:
    """Return the argument vector of a command of the service."""
    return [sys.executable, "-m", "cli", *map(str, arguments)]


def run_command(
    *arguments: object,
    folder: Path,
    stdin: str | None = None,
    seconds: float = PATIENCE_S,
    environment: Mapping[str, str] = {},
) -> Ended:
    """Run a command of the service to its end in a folder, with no settings but those given."""
    words, variables = command_line(*arguments), {**ENVIRONMENT, **environment}
    if any(name.startswith("PYTHON") for name in environment):  # read as the interpreter starts
        return subprocess.run(
            words, cwd=folder, env=variables, input=stdin, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
    with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        given.write(stdin or "")
        given.seek(0)
        streams = [each.fileno() for each in (given, out, err)]
        started = command_server().start(list(map(str, arguments)), folder, variables, streams)
        code = started.wait(seconds)
        for each in (out, err):
            each.seek(0)
        return Ended(words, code, out.read(), err.read())


def wait_gone(processes: Mapping[str, int], seconds: float = PATIENCE_S) -> None:
    """Wait until no process of these runs, by name; one that is only not reaped yet has ended."""

    def left() -> dict[str, int]:
        return {name: pid for name, pid in processes.items() if is_running(pid)}

    until(lambda: not left(), seconds, 0.02, seen=left)


def is_running(process: int) -> bool:
    """Return whether a process runs: it is there, and not merely not reaped."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return bool(shown.stdout.strip()) and not shown.stdout.strip().startswith("Z")


def command_lines() -> str:
    """The arguments of all processes of this user, as `ps` shows them."""
    shown = subprocess.run(
        ["ps", "-u", str(os.getuid()), "-o", "args="], capture_output=True, text=True, check=True
    )
    return shown.stdout
