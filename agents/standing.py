"""Who goes first on a busy host: niceness, also where processors are shared out among sessions."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

AHEAD: Final = -5
"""Added to the niceness of what is served, where the system lets us (CAP_SYS_NICE): a threshold is
late wherever its worker waits for a processor."""
BEHIND: Final = 10
"""Added to the niceness of what only stores."""
LAST: Final = 19
"""Added to the niceness of what nobody waits for."""

_AUTOGROUP: Final = Path("/proc/self/autogroup")


def stand(added: int) -> None:
    """Add to the niceness of this process; go on without where that is not allowed."""
    with contextlib.suppress(OSError):
        niceness = os.nice(added)
        # Linux may share processors out among sessions (sched(7), "The autogroup feature"): for one
        # that has a session to itself, only the niceness of the session counts then.
        if os.getsid(0) == os.getpid():
            _AUTOGROUP.write_text(str(niceness))
