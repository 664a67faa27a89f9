"""The limits of what Postgres keeps of events and cases, and of what counts for others."""

from __future__ import annotations

from typing import Final, NamedTuple


class RetentionLimits(NamedTuple):
    """What is kept; 0: everything."""

    days: float = 30.0
    """Age of events."""
    events: int = 10_000
    """Packed events of a tenant and workflow type, the newest."""
    cases: int = 200
    """Live episodes of a user and agent."""
    unnamed: int = 10_000
    """Live episodes of a tenant and workflow type whose runs name no user."""


USUAL: Final = RetentionLimits()


class WriteLimits(NamedTuple):
    """How many episodes of one writer count for others; 0: all, and floods are not looked for."""

    user: int = 1_000
    """Episodes of a user that begin in one window."""
    session: int = 300
    """Those of a session of the user, or of one that names no user."""
    window_s: int = 3_600
    """Length of a window; windows are counted from 1970 on."""
    low_reward: float = 0.25
    """Mean reward up to which a flood is quarantined as a whole."""
    unnamed: int = 10_000
    """Episodes of a tenant that name neither user nor session and begin in one window."""

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return bool(self.user or self.session or self.low_reward or self.unnamed)

    @property
    def window_ms(self) -> int:
        """Length of a window in ms."""
        return self.window_s * 1_000


USUAL_WRITES: Final = WriteLimits()
UNLIMITED_WRITES: Final = WriteLimits(0, 0, 3_600, 0.0, 0)
