"""Reads the reports that workers write about themselves."""

from __future__ import annotations

from pathlib import Path

from processing.worker_report import REPORT_FILE, Report, decode_report


def read_report(data: Path, pid: int) -> Report | None:
    """Return the newest report of a process, None if there is none yet.

    `data`: the worker's own directory.
    """
    try:
        report = decode_report((data / REPORT_FILE).read_bytes())
    except OSError:
        return None
    return report if report is not None and report.pid == pid else None
