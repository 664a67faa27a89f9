"""Waiting beside a running system."""

from __future__ import annotations

import time
from collections.abc import Callable

from deploy.system import System
from tests.patience import PATIENCE_S


def until(system: System, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Watch over the system, which starts workers again, until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        system.check()
        time.sleep(0.05)
