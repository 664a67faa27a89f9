"""Process priority, as tests see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def foreground() -> int:
    """Return what a foreground process gets added; 0 where the system forbids it."""
    lower = [sys.executable, "-c", "import os; os.nice(-5)"]
    refused = subprocess.run(lower, check=False, capture_output=True).returncode
    return 0 if refused else -5


def check_niceness(pid: int, niceness: int) -> None:
    """Check the niceness of a process that leads a session, and of that session."""
    assert os.getpriority(os.PRIO_PROCESS, pid) == niceness
    session = Path(f"/proc/{pid}/autogroup")
    if session.exists() and niceness != os.getpriority(os.PRIO_PROCESS, 0):
        assert session.read_text().endswith(f"nice {niceness}\n")
