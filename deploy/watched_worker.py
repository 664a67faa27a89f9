"""Runs one worker in a child process, and ends both if the worker is stuck.

For container engines: they restart a container that ended, not one that is unhealthy.
"""

from __future__ import annotations

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
from processing.worker_report import REPORT_FILE, Report, Watchdog, decode_report

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
    with subprocess.Popen(command, env={**os.environ, **environment}) as worker:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda passed, _frame: worker.send_signal(passed))
        why = _watch(worker, data / REPORT_FILE, Watchdog(stuck_after_s))
        if why is not None:
            log.error("worker.stuck", worker=name, reason=why)
            worker.kill()
        code = worker.wait()
    if why is not None:
        return EXIT_CODE
    return code if code >= 0 else 128 - code


def _watch(worker: subprocess.Popen[bytes], file: Path, watchdog: Watchdog) -> str | None:
    """Return why the worker is stuck, or None once it has ended."""
    while True:
        try:
            worker.wait(_OBSERVE_S)
        except subprocess.TimeoutExpired:
            report = _report(file, worker.pid)
            if why := watchdog.observe(time.monotonic(), report, cpu_wait_s(worker.pid)):
                return why
        else:
            return None


def _report(file: Path, pid: int) -> Report | None:
    """Return the newest report of a process, None if there is none yet."""
    try:
        report = decode_report(file.read_bytes())
    except OSError:
        return None
    return report if report is not None and report.pid == pid else None
