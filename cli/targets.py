"""What the commands that look at a running system look at, from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from settings import Settings
    from watching.target import Target


def target_of(settings: Settings) -> Target:
    """Return the system that the settings name."""
    from watching.target import Target

    return Target(
        settings.kafka,
        settings.postgres,
        settings.redis,
        settings.data,
        settings.health,
    )
