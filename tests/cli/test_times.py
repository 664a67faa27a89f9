"""Times of options: what is taken, and that a number in another unit is refused with the fix."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from cli.support.times import parse_moment, parse_time

NOW = 1_790_000_000_000
DAY = 86_400_000


def _ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2d", NOW - 2 * DAY),
        ("1790000000123", 1_790_000_000_123),
        ("20260101", _ms(2026, 1, 1)),
        ("2026-01-01", _ms(2026, 1, 1)),
        ("20260101T1230", _ms(2026, 1, 1, 12, 30)),
        ("2000-01-01", _ms(2000, 1, 1)),
    ],
)
def test_times_that_are_taken(text: str, at: int) -> None:
    assert parse_time(text, NOW) == at


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1790000000", "reads as seconds; give Unix milliseconds: 1790000000000"),
        ("1790000000.25", "reads as seconds; give Unix milliseconds: 1790000000250"),
        ("1790000000000000", "reads as microseconds; give Unix milliseconds: 1790000000000"),
        ("1790000000000000000", "reads as nanoseconds; give Unix milliseconds: 1790000000000"),
        ("0", "before the year 2000"),
        ("20261301", "before the year 2000"),
        ("1999-12-31", "before the year 2000"),
        ("20000d", "before the year 2000"),
        ("1790012512", "reads as seconds"),
        ("yesterday", "is no time"),
    ],
)
def test_times_that_are_refused(text: str, reason: str) -> None:
    with pytest.raises(typer.BadParameter, match=reason):
        parse_time(text, NOW)


def test_a_moment_is_no_number() -> None:
    assert parse_moment("20300131") == _ms(2030, 1, 31)
    for text in ("1790012512000", "1790000000", "1970-01-01"):
        with pytest.raises(typer.BadParameter, match="is no moment"):
            parse_moment(text)
