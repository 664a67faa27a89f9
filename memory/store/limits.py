"""The limits of what Postgres keeps of events and cases."""

from __future__ import annotations

from typing import Final, NamedTuple


class RetentionLimits(NamedTuple):
    """What is kept; 0: everything."""

    days: float = 30.0
    """Age of events."""
    events: int = 10_000
    """Packed events of a tenant and workflow type, the newest."""
    cases: int = 200
    """Live episodes of a user and agent; of runs that name no user all are kept."""


USUAL: Final = RetentionLimits()
