"""Parses and formats ages and times of commands, and reads the clock for them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import typer

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def now_ms() -> int:
    """Return the wall clock, Unix ms."""
    return time.time_ns() // 1_000_000


def parse_age(text: str) -> int:
    """Return the milliseconds of `90s`, `30m`, `1.5h` or `7d`. Raises `typer.BadParameter`."""
    if (age := _age_ms(text)) is None:
        raise typer.BadParameter(f"{text!r} is no age; give a number and s, m, h or d, as in 2h")
    return age


def parse_since(age: str | None) -> int:
    """Return the time that long ago, Unix ms; 0 without an age. Raises `typer.BadParameter`."""
    return 0 if age is None else now_ms() - parse_age(age)


def parse_time(text: str | None, now: int | None = None) -> int | None:
    """Return an age before `now` (Unix ms), a time in ISO 8601, or Unix ms, as Unix ms.

    Raises `typer.BadParameter`.
    """
    if text is None:
        return None
    if (age := _age_ms(text)) is not None:
        at: int | None = (now_ms() if now is None else now) - age
    else:
        at = int(text) if text.isdecimal() else _iso_ms(text)
    if at is None or (age is not None and at < 0):
        raise typer.BadParameter(
            f"{text!r} is no time: give 90s, 2h, 3d, 2026-01-31T12:00, or Unix ms"
        )
    return at


def parse_moment(text: str) -> int:
    """Return a time in ISO 8601 as Unix ms, UTC without an offset. Raises `typer.BadParameter`."""
    if (at := _iso_ms(text)) is None:
        raise typer.BadParameter(
            f"{text!r} is no moment; give ISO 8601, as in 2030-01-31T18:00 or ...T18:00+01:00"
        )
    return at


def _age_ms(text: str) -> int | None:
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", text)
    return None if found is None else round(float(found[1]) * _UNITS_MS[found[2]])


def _iso_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def shown_moment(at: int | None) -> str | None:
    """Return Unix ms as ISO 8601, UTC."""
    return None if at is None else iso_moment(at, "seconds")


def iso_moment(at: int, precision: str = "milliseconds") -> str:
    """Return Unix ms as ISO 8601, UTC, or as a number beyond the calendar's range."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).isoformat("T", precision)
    except (ValueError, OverflowError, OSError):
        return str(at)
