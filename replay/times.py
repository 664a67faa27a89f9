"""Times that files have, as Unix milliseconds. A time that says no zone is taken as UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headstart.events import LAST_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def unix_ms(milliseconds: float) -> int | None:
    """Return a time in whole ms; None for 0, which means "not set", and for what is no time."""
    return int(milliseconds) if 0 < milliseconds <= LAST_MS else None


def iso_ms(value: Any) -> int | None:
    """Return an ISO 8601 time as Unix ms, UTC unless it says its zone; None where it is none."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    for zone in (" UTC", " GMT"):  # as databases write it
        text = text.removesuffix(zone) + "Z" if text.endswith(zone) else text
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    return unix_ms(since // timedelta(milliseconds=1))
