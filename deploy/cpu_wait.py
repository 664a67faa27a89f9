"""Reads for how long a process has been ready to run and had no processor.

Linux only (`/proc/PID/task/TID/schedstat`, second number; kernel documentation, "Scheduler
statistics"); 0 elsewhere.
"""

from __future__ import annotations

from pathlib import Path


def cpu_wait_s(pid: int, proc: Path = Path("/proc")) -> float:
    """Return the seconds that the thread of a process that waited longest for a processor waited.

    0.0 if the process has ended or the system does not count it.
    """
    try:
        tasks = list((proc / str(pid) / "task").iterdir())
    except OSError:
        return 0.0
    return max((_waited_s(task / "schedstat") for task in tasks), default=0.0)


def _waited_s(schedstat: Path) -> float:
    try:
        _run_ns, waited_ns, _slices = schedstat.read_text().split()
        return int(waited_ns) / 1e9
    except (OSError, ValueError):  # a thread that ended, or another kernel
        return 0.0
