"""Process priority: niceness, and on Linux the niceness of the session's autogroup.

With autogroups, Linux schedules sessions against each other (sched(7), "The autogroup feature").
Then only the niceness of the session counts for a session leader.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

FOREGROUND: Final = -5
"""Added to the niceness of processes on the path of thresholds, if permitted (CAP_SYS_NICE):
waiting for a processor delays a threshold."""
BACKGROUND: Final = 10
"""Added to the niceness of processes that only store."""
IDLE: Final = 19
"""Added to the niceness of processes whose result is not urgent; also the largest niceness."""


def add_niceness(added: int, pid: int = 0) -> None:
    """Add to the niceness of a process, and to that of its session if it leads one.

    `pid` 0 is this process. Does nothing if the system does not permit it.
    """
    pid = pid or os.getpid()
    with contextlib.suppress(OSError):
        niceness = min(IDLE, os.getpriority(os.PRIO_PROCESS, pid) + added)
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        if os.getsid(pid) == pid:
            _set_session(pid, niceness)


def copy_to_child_sessions(pid: int) -> None:
    """Set the niceness of the sessions led by a process's children to that of the process.

    A child inherits niceness, but a new session starts at 0. Each Postgres process leads one.
    """
    with contextlib.suppress(OSError):
        niceness = os.getpriority(os.PRIO_PROCESS, pid)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            _set_session(int(child), niceness)


def _set_session(pid: int, niceness: int) -> None:
    session = Path(f"/proc/{pid}/autogroup")
    with contextlib.suppress(OSError):
        if not session.read_text().endswith(f" nice {niceness}\n"):
            session.write_text(str(niceness))
