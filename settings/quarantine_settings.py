"""The settings of which episodes count for others."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from memory.store.limits import USUAL_WRITES


class QuarantineSettings(BaseSettings):
    """The limits of `memory.store.limits.WriteLimits`; episodes beyond them are quarantined."""

    user_cases: int = Field(
        USUAL_WRITES.user,
        ge=0,
        description="episodes of a user in one window that count; further ones are quarantined; "
        "0: all",
    )
    session_cases: int = Field(
        USUAL_WRITES.session,
        ge=0,
        description="episodes of a session in one window that count; 0: all",
    )
    unnamed_cases: int = Field(
        USUAL_WRITES.unnamed,
        ge=0,
        description="episodes of a tenant that name neither user nor session in one window that "
        "count; 0: all",
    )
    cases_window_s: int = Field(
        USUAL_WRITES.window_s, ge=60, le=86_400, description="length of these windows in seconds"
    )
    low_reward: float = Field(
        USUAL_WRITES.low_reward,
        ge=0,
        lt=1,
        description="mean reward up to which a user's flood is quarantined as a whole; 0: never",
    )
