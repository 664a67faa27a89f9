"""Waiting beside a running system."""

from __future__ import annotations

from collections.abc import Callable

from deploy.system import System
from tests import patience
from tests.patience import PATIENCE_S


def until(system: System, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait until a condition holds; workers that end are restarted meanwhile."""
    patience.until(condition, seconds, meanwhile=system.check)
