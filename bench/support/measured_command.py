"""Runs a command of Headstart as a process of its own, and measures it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

LOOK_S: Final = 0.02
"""How often the memory is looked at; its largest value is the kernel's, not one of the looks."""


class CommandFailed(RuntimeError):
    """A command has ended with another exit code than 0; its output went to stderr."""

    def __init__(self, arguments: tuple[str, ...], code: int) -> None:
        super().__init__(f"headstart {' '.join(arguments)} ended with {code}")


class MeasuredCommand(NamedTuple):
    """What a command took, and the JSON object that it printed.

    `cpu_s`: of its own process, without the services; `peak_mb`: its largest resident set.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    found: dict[str, Any]


def measured(environment: Mapping[str, str], *arguments: str) -> MeasuredCommand:
    """Run `headstart ARGUMENTS --json` to its end. Raises `CommandFailed`."""
    argv = [sys.executable, "-P", "-m", "cli", *arguments, "--json"]
    begun, peak = time.monotonic(), 0
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, env={**os.environ, **environment}, stdout=output)
        while True:
            peak = max(peak, _peak_kb(process.pid))
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(LOOK_S)
        wall = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().splitlines()
    if process.returncode != 0 or not lines:
        raise CommandFailed(arguments, process.returncode)
    return MeasuredCommand(
        round(wall, 2),
        round(usage.ru_utime + usage.ru_stime, 2),
        round(peak * 1024 / 1e6, 1),
        orjson.loads(lines[-1]),
    )


def _peak_kb(process: int) -> int:
    # Not ru_maxrss: a child's begins with what its parent had.
    with suppress(OSError):
        text = Path(f"/proc/{process}/status").read_text()
        found = text.partition("VmHWM:")[2].split()
        return int(found[0]) if found else 0
    return 0
