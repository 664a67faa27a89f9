"""Process priority: niceness, and on Linux the niceness of the session's autogroup.

Linux may share processors out among sessions (sched(7), "The autogroup feature"). For a process
that leads a session only the niceness of that session counts then.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

FOREGROUND: Final = -5
"""Added to the niceness of processes that thresholds go through, where the system allows it
(CAP_SYS_NICE): a threshold is late wherever its worker waits for a processor."""
BACKGROUND: Final = 10
"""Added to the niceness of processes that only store."""
IDLE: Final = 19
"""Added to the niceness of processes whose result is not urgent; also the largest niceness."""


def add_niceness(added: int, pid: int = 0) -> None:
    """Add to the niceness of a process, and to that of its session if it leads one.

    `pid` 0 is this process. What the system does not allow is left as it is.
    """
    pid = pid or os.getpid()
    with contextlib.suppress(OSError):
        niceness = min(IDLE, os.getpriority(os.PRIO_PROCESS, pid) + added)
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        if os.getsid(pid) == pid:
            _set_session(pid, niceness)


def copy_to_child_sessions(pid: int) -> None:
    """Give the sessions that children of a process lead the niceness of that process.

    A child inherits niceness, but a new session begins at 0. Each process of Postgres leads one.
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
