"""Parses and formats ages and times of commands, and reads the clock for them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import typer

from headstart.events.schema import FIRST_MS, LAST_MS
from headstart.events.validation import misread_unit

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


_NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
_OUTSIDE = "before the year 2000 or after 9999"


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

    Raises `typer.BadParameter`, also for a number in another unit and a time before the year 2000:
    as a limit of a range it would select everything, or nothing.
    """
    if text is None:
        return None
    if (age := _age_ms(text)) is not None:
        at: int | None = (now_ms() if now is None else now) - age
    elif (at := _iso_ms(text)) is None and _NUMBER.fullmatch(text):
        return _number_ms(text)
    if at is None:
        raise typer.BadParameter(
            f"{text!r} is no time: give 90s, 2h, 3d, 2026-01-31T12:00, or Unix ms"
        )
    if not FIRST_MS <= at <= LAST_MS:
        raise typer.BadParameter(f"{text!r} is {_OUTSIDE}; give 90s, 2h, 3d or 2026-01-31T12:00")
    return at


def _number_ms(text: str) -> int:
    """Return a number of Unix ms. Raises `typer.BadParameter` for every other number."""
    number = float(text)
    if (unit := misread_unit(number)) is not None:
        per_ms = {"seconds": 1e-3, "microseconds": 1e3, "nanoseconds": 1e6}[unit]
        raise typer.BadParameter(
            f"{text!r} reads as {unit}; give Unix milliseconds: {number / per_ms:.0f}"
        )
    if not FIRST_MS <= number <= LAST_MS:
        raise typer.BadParameter(
            f"{text!r} as Unix milliseconds is {_OUTSIDE}; give 90s, 2h, 3d or 2026-01-31T12:00"
        )
    return int(number)


def parse_moment(text: str) -> int:
    """Return a time in ISO 8601 as Unix ms, UTC without an offset. Raises `typer.BadParameter`."""
    if (at := _iso_ms(text)) is None or at < FIRST_MS:
        raise typer.BadParameter(
            f"{text!r} is no moment; give ISO 8601, as in 2030-01-31T18:00 or ...T18:00+01:00"
        )
    return at


def _age_ms(text: str) -> int | None:
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", text)
    return None if found is None else round(float(found[1]) * _UNITS_MS[found[2]])


def _iso_ms(text: str) -> int | None:
    """Return a time in ISO 8601 as Unix ms, None for anything else; of digits only YYYYMMDD is."""
    if text.isdecimal() and len(text) != len("20260131"):
        return None  # Python takes some numbers for a date, a separator and a time
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
