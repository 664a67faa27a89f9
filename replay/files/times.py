"""Times in files, as Unix milliseconds. A time without a zone is taken as UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headstart.events.schema import LAST_MS
from headstart.events.validation import misread_unit

LONGEST_CALL_MS: Final = 24 * 3_600_000
"""The longest duration accepted for a call of an agent run, in ms."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def unix_ms(milliseconds: float) -> int | None:
    """Return a time in whole ms; None for 0, which means "not set", and for an invalid time."""
    return int(milliseconds) if 0 < milliseconds <= LAST_MS else None


def refuse_other_units(value: Any, name: str) -> None:
    """Raise `ValueError` if a number looks like a time in seconds, µs or ns instead of Unix ms."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if (unit := misread_unit(value)) is not None:
        raise ValueError(f"{name}: {value} reads as {unit}; give Unix milliseconds")


def iso_ms(value: Any) -> int | None:
    """Return an ISO 8601 time as Unix ms, UTC unless it has a zone; None if it cannot be parsed."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    for zone in (" UTC", " GMT"):  # written by databases
        text = text.removesuffix(zone) + "Z" if text.endswith(zone) else text
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    return unix_ms(since // timedelta(milliseconds=1))
