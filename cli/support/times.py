"""Ages and moments, as commands take them. Reads the clock so that others need not."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import typer

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def now_ms() -> int:
    """Return the wall clock, Unix ms."""
    return time.time_ns() // 1_000_000


def duration_ms(text: str) -> int:
    """Return the milliseconds of `90s`, `30m`, `2h` or `7d`. Raises `typer.BadParameter`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age; give a number and s, m, h or d, as in 2h")
    return int(found[1]) * _UNITS_MS[found[2]]


def since_ms(age: str | None) -> int:
    """Return the moment so long ago, Unix ms; 0 where no age is given.

    Raises `typer.BadParameter`.
    """
    return 0 if age is None else now_ms() - duration_ms(age)


def moment_ms(text: str) -> int:
    """Return a moment in ISO 8601, UTC where it names no zone, as Unix ms.

    Raises `typer.BadParameter`.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no moment; give ISO 8601, as in 2030-01-31T18:00 or ...T18:00+01:00"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def shown_moment(at: int | None) -> str | None:
    """Return Unix ms as ISO 8601, UTC."""
    return None if at is None else iso_moment(at, "seconds")


def iso_moment(at: int, precision: str = "milliseconds") -> str:
    """Return Unix ms as ISO 8601, UTC; a moment beyond any calendar as the number that it is."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).isoformat("T", precision)
    except (ValueError, OverflowError, OSError):
        return str(at)
