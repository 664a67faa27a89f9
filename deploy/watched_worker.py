"""Runs one worker in a child process, and ends both if the worker is stuck.

For container engines: they restart a container that ended, not one that is unhealthy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from deploy.cpu_wait import cpu_wait_s
from deploy.local.parent_death import parent_death_watch
from deploy.worker_reports import read_report
from processing.worker_report import Watchdog

log = structlog.get_logger()

EXIT_CODE: Final = 70
"""The exit code after a stuck worker, as of one that ended itself on an error."""
_OBSERVE_S: Final = 0.5


def run_watched(name: str, data: Path, environment: Mapping[str, str], stuck_after_s: float) -> int:
    """Run `headstart worker NAME` until it ends or is stuck; return the exit code.

    `data`: the worker's own directory, with its report. `environment`: its settings.
    `stuck_after_s`: seconds without a report, or without progress; 0: never. Passes SIGTERM and
    SIGINT on. Call it from the main thread.
    """
    # -P: the current directory may contain a settings.py or cli.py of the user.
    command = [sys.executable, "-P", "-m", "cli", "worker", name]
    signals, parent = _PassedSignals(), parent_death_watch()
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        preexec_fn=parent.before_exec(signal.SIGKILL),  # noqa: PLW1509 - no thread runs yet
    ) as worker:
        parent.follow(worker.pid, signal.SIGKILL)
        signals.pass_to(worker)
        try:
            why = _watch(worker, data, Watchdog(stuck_after_s))
        except BaseException:
            worker.kill()
            raise
        if why is not None:
            worker.kill()
            with contextlib.suppress(OSError):  # the reader of stderr may be gone
                log.error("worker.stuck", worker=name, reason=why)
        code = worker.wait()
    parent.close()
    if why is not None:
        return EXIT_CODE
    return code if code >= 0 else 128 - code


class _PassedSignals:
    """Passes SIGTERM and SIGINT on to a process, also those that arrive before it has started."""

    def __init__(self) -> None:
        self._early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass)

    def pass_to(self, process: subprocess.Popen[bytes]) -> None:
        """Pass them to `process` from now on."""
        self._process = process
        for number in self._early:
            process.send_signal(number)

    def _pass(self, number: int, _frame: object) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def _watch(worker: subprocess.Popen[bytes], data: Path, watchdog: Watchdog) -> str | None:
    """Return why the worker is stuck, or None once it has ended."""
    while True:
        try:
            worker.wait(_OBSERVE_S)
        except subprocess.TimeoutExpired:
            report = read_report(data, worker.pid)
            if why := watchdog.observe(time.monotonic(), report, cpu_wait_s(worker.pid)):
                return why
        else:
            return None
