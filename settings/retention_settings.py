"""The settings of what Postgres keeps of events and cases."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from memory.store.limits import USUAL


class RetentionSettings(BaseSettings):
    """The limits of `memory.store.limits`; 0 keeps everything."""

    retention_days: float = Field(
        USUAL.days,
        ge=0,
        le=36_500,
        description="days for which Postgres keeps events, at least 8; episodes stay; 0: always",
    )
    keep_events: int = Field(
        USUAL.events,
        ge=0,
        description="packed events that are kept of each tenant and workflow type; 0: all",
    )
    keep_cases: int = Field(
        USUAL.cases, ge=0, description="episodes that are kept of each user and agent; 0: all"
    )
    keep_unnamed: int = Field(
        USUAL.unnamed,
        ge=0,
        description="episodes that are kept of each tenant and workflow type of runs that name no "
        "user; 0: all",
    )

    @field_validator("retention_days")
    @classmethod
    def _no_unpacked_day(cls, value: float) -> float:
        if 0 < value < 8:
            raise ValueError("at least 8, because runs are packed after a week; 0: always")
        return value
