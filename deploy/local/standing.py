"""Who of the local stack goes first on a busy host (docs/decisions/0010); see `agents/standing.py`.

Linux may share processors out among sessions (sched(7), "The autogroup feature"): for one that has
a session to itself, only the niceness of the session counts then.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

AHEAD: Final = -5
"""Added to the niceness of what every threshold goes through, as a threshold worker adds to its
own."""
BEHIND: Final = 10
"""Added to the niceness of what only stores, as a sink adds to its own."""
_LAST: Final = 19


def stand(pid: int, added: int) -> None:
    """Add to the niceness of a process that leads a session, and so to that session's.

    What the system does not allow is left as it is.
    """
    with contextlib.suppress(OSError):
        niceness = min(_LAST, os.getpriority(os.PRIO_PROCESS, pid) + added)
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        _put_session(pid, niceness)


def stand_as_parent(pid: int) -> None:
    """Have the sessions that children of a process lead stand as it does.

    They have its niceness, but a session begins at 0, and each process of Postgres leads one.
    """
    with contextlib.suppress(OSError):
        niceness = os.getpriority(os.PRIO_PROCESS, pid)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            _put_session(int(child), niceness)


def _put_session(pid: int, niceness: int) -> None:
    session = Path(f"/proc/{pid}/autogroup")
    with contextlib.suppress(OSError):
        if not session.read_text().endswith(f" nice {niceness}\n"):
            session.write_text(str(niceness))
