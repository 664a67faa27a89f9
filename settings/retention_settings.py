"""The settings of how long things are kept: events and cases in Postgres, marks of deletions."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from memory.store.limits import USUAL
from processing.state.tombstones import MARKER_RETENTION_S


class RetentionSettings(BaseSettings):
    """The limits of `memory.store.limits`, of which 0 keeps everything; and of tombstones."""

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
    deletion_marks_s: float = Field(
        MARKER_RETENTION_S,
        ge=1,
        le=7 * 86_400,
        description="seconds for which Redis and the topics keep the mark, with its path, of a "
        "deleted context: longer than a worker may be suspended",
    )

    @field_validator("retention_days")
    @classmethod
    def _no_unpacked_day(cls, value: float) -> float:
        if 0 < value < 8:
            raise ValueError("at least 8, because runs are packed after a week; 0: always")
        return value
